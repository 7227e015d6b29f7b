"""PostgreSQL: a process for each connection, forked after accept. pgbench over TCP, and its books must balance."""

import os
import pwd

from support import net, paths
from support.failure import Failure, check

USER = "postgres"
CLIENTS = 4
SECONDS = 3

# Every pgbench transaction adds one amount to an account, a teller, a branch and the history.
BALANCES = """
SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
   AND (SELECT sum(tbalance) FROM pgbench_tellers)  = (SELECT sum(delta) FROM pgbench_history)
   AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history)
   AND (SELECT count(*) > 0 FROM pgbench_history)
"""


class Server:
    """A cluster in the temporary directory. PostgreSQL refuses to run as root, so root starts it as its user."""

    def __init__(self, case):
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
            "-c", "shared_buffers=16MB", "-c", "max_connections=20"], **self.options)
        net.wait_port(self.port, self.process)

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

    def run(self, role, program, *arguments, **options):
        return self.case.run(role, [program, *arguments], seconds=60, **self.options, **options)

    def query(self, sql):
        return self.run("psql", paths.postgresql("psql"), "-XAtq", "-c", sql).strip()


def test_pgbench(case):
    case.expect_ring("pgbench", "postgresql")
    server = Server(case)
    server.run("pgbench", paths.postgresql("pgbench"), "-i", "-q", "-s", 1)
    output = server.run("pgbench", paths.postgresql("pgbench"), "-c", CLIENTS, "-j", 2, "-T", SECONDS, "-n")
    check("number of failed transactions: 0 " in output, f"pgbench saw failures:\n{output}")
    check(server.query(BALANCES) == "t", "the sums of accounts, tellers, branches and history differ")


def test_large_results(case):
    """Results of many megabytes, made from nothing but a number, compared with the same made here."""
    case.expect_ring("psql", "postgresql")
    server = Server(case)
    rows, width = 3_000, 1_000
    lines = server.query(f"SELECT n || ':' || repeat(chr(97 + n % 26), {width}) FROM generate_series(1, {rows}) n")
    wanted = [f"{n}:{chr(97 + n % 26) * width}" for n in range(1, rows + 1)]
    check(lines.splitlines() == wanted, "a large result came changed")
