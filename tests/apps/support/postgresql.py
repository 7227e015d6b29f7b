"""A PostgreSQL cluster in the case's directory, and its client programs over TCP."""

import os
import pwd
import re
import shutil

from apps.support import versions
from testkit import net, paths
from testkit.failure import Failure

USER = "postgres"
READY = re.compile("database system is ready to accept connections")


class Postgresql:
    """PostgreSQL refuses to run as root, so root starts it, and all that is to share memory with it, as its user."""

    def __init__(self, case, *settings):
        self.case = case
        self.port = net.free_port()
        self.home = case.tmp / "postgresql"
        self.home.mkdir()
        self.options = {"cwd": self.home, "env": {"HOME": str(self.home), "PGHOST": net.LOOPBACK,
                                                  "PGPORT": str(self.port), "PGUSER": USER, "PGDATABASE": USER}}
        if os.geteuid() == 0:
            self.become_user()
        data = self.home / "data"
        self.run("initdb", paths.postgresql("initdb"), "-D", data, "-A", "trust", "-U", USER, "--no-sync", "-E", "UTF8",
                 "--locale", "C", preload=False)
        self.process = case.start("postgresql", [
            paths.postgresql("postgres"), "-D", data, "-p", self.port, "-h", net.LOOPBACK, "-k", "", "-F",
            "-c", "shared_buffers=16MB", "-c", "max_connections=30", *settings], **self.options)
        self.process.wait_output(READY, 40)

    def become_user(self):
        try:
            account = pwd.getpwnam(USER)
        except KeyError:
            raise Failure(f"no user {USER}: run tools/install-deps test") from None
        os.chown(self.home, account.pw_uid, account.pw_gid)
        # The reports and the binaries must be within that user's reach, wherever the checkout is.
        self.case.tmp.chmod(0o777)
        if self.case.layer is not None:
            self.case.layer.copy_binaries(self.case.tmp / "bin")
        self.options["wrap"] = [paths.program("setpriv"), f"--reuid={USER}", f"--regid={USER}", "--init-groups", "--"]

    def readable(self, peer):
        """A copy of a peer program that the server's user can read."""
        return shutil.copy(self.case.peer(peer), self.home)

    def start(self, role, program, *arguments, **options):
        """Starts a program as the server's user."""
        return self.case.start(role, [program, *arguments], **self.options, **options)

    def run(self, role, program, *arguments, **options):
        return self.case.run(role, [program, *arguments], seconds=60, **self.options, **options)

    def client(self, name, *arguments, port=None, **options):
        """Runs one of PostgreSQL's own clients, at the server or at another port."""
        at = ["-p", port] if port else []
        return self.run(name, paths.postgresql(name), *at, *arguments, **options)

    def query(self, sql, port=None):
        return self.client("psql", "-XAtq", "-c", sql, port=port).strip()


def version():
    return versions.of(r"\) (\S+)", paths.postgresql("postgres"), "--version")
