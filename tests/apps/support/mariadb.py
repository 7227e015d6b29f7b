"""A MariaDB server with an empty database in the case's directory, and its client programs over TCP."""

import getpass

from apps.support import versions
from testkit import net, paths

DATABASE = "checked"

# The data need not outlive the machine.
CARELESS = ("--innodb-flush-method=nosync", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M")


class Mariadb:
    def __init__(self, case, role="mariadbd", *options):
        self.case = case
        self.port = net.free_port()
        home = case.tmp / f"{role}.data"
        user = f"--user={getpass.getuser()}"  # as root it wants to be told
        case.run(f"{role}-install", [
            paths.program("mariadb-install-db"), "--no-defaults", f"--datadir={home}", user, "--skip-test-db",
            "--auth-root-authentication-method=normal", *CARELESS], seconds=60, preload=False)
        self.process = case.start(role, [
            paths.program("mariadbd"), "--no-defaults", f"--datadir={home}", user, f"--port={self.port}",
            f"--bind-address={net.LOOPBACK}", f"--socket={home}/socket", "--skip-name-resolve", *CARELESS, *options])
        net.wait_port(self.port, self.process, 40)
        self.query(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4", "")

    def command(self, program, *options):
        return [paths.program(program), "--no-defaults", f"--host={net.LOOPBACK}", f"--port={self.port}", "--user=root",
                "--protocol=TCP", *options]

    def run(self, program, *options, role=None, **more):
        return self.case.run(role or program, self.command(program, *options), seconds=60, **more)

    def query(self, sql, database=DATABASE):
        """What the statements answer, without a headline, columns apart by a tab."""
        return self.run("mariadb", "--batch", "--skip-column-names", f"--execute={sql}", database).strip()

    def feed(self, path, database=DATABASE):
        """Executes a file of statements that the client reads at its standard input."""
        with open(path, "rb") as source:
            self.run("mariadb", database, stdin=source)


def version():
    return versions.of(r"Ver (\S+)", paths.program("mariadbd"), "--version")
