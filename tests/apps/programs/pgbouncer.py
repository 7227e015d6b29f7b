"""pgbouncer between clients and PostgreSQL: many clients over few server connections, a new connection for each
transaction, large results, a pool that is paused and reloaded under load."""

import signal

from apps.support import pgbench, versions
from apps.support.marks import slow
from apps.support.postgresql import USER, Postgresql
from testkit import net, paths
from testkit.failure import check

CLIENTS = 16
ROUNDS = 5

CONFIG = """
[databases]
{user} = host={host} port={service} dbname={user}
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = users
admin_users = {user}
stats_users = {user}
pool_mode = {mode}
default_pool_size = 6
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
"""


def version():
    return versions.of(r"PgBouncer (\S+)", paths.program("pgbouncer"), "--version")


class Pool:
    """PostgreSQL and a pgbouncer in front of it, both as PostgreSQL's user."""

    def __init__(self, case, mode):
        case.expect_ring("pgbouncer", "postgresql")
        self.server = Postgresql(case)
        self.port = net.free_port()
        config = self.server.home / "pgbouncer.ini"
        config.write_text(CONFIG.format(host=net.LOOPBACK, port=self.port, service=self.server.port, mode=mode,
                                        user=USER))
        (self.server.home / "users").write_text(f'"{USER}" ""\n')
        self.process = self.server.start("pgbouncer", paths.program("pgbouncer"), config,
                                         stop_signal=signal.SIGINT)  # it calls its end by SIGTERM a failure
        net.wait_port(self.port, self.process)

    def admin(self, command):
        """A command to pgbouncer itself, by a client that is not preloaded."""
        return self.server.client("psql", "-XAtq", "-d", "pgbouncer", "-c", command, port=self.port, preload=False)


@slow(90)
def test_load(case):
    """16 clients of pgbench share six server connections, transaction by transaction; the books must balance."""
    case.expect_ring("pgbench")
    pool = Pool(case, "transaction")
    pgbench.prepare(pool.server)
    pgbench.load(pool.server, CLIENTS, "-T", 3, port=pool.port)
    pgbench.check_balances(pool.server)


@slow(90)
def test_reconnects(case):
    """16 clients make a new connection to pgbouncer for each transaction (-C)."""
    case.expect_seen("pgbench")
    pool = Pool(case, "session")
    pgbench.prepare(pool.server)
    pgbench.load(pool.server, CLIENTS, "-t", 40, "-C", port=pool.port)
    pgbench.check_balances(pool.server)
    count = pool.server.query("SELECT count(*) FROM pgbench_history")
    check(count == str(CLIENTS * 40), f"{count} transactions in the history, not {CLIENTS * 40}")


@slow(60)
def test_large_results(case):
    """Megabytes through pgbouncer, compared with the same made here."""
    case.expect_ring("psql", share=0.5)
    pool = Pool(case, "session")
    rows, width = 3_000, 2_000
    sql = f"SELECT n || ':' || repeat(chr(97 + n % 26), {width}) FROM generate_series(1, {rows}) n"
    wanted = [f"{n}:{chr(97 + n % 26) * width}" for n in range(1, rows + 1)]
    check(pool.server.query(sql, port=pool.port).splitlines() == wanted, "a large result came changed")


@slow(90)
def test_paused_under_load(case):
    """While clients are at work, the pool is paused, loses its server connections, reads its file again and goes on."""
    case.expect_ring("pgbench")
    pool = Pool(case, "transaction")
    pgbench.prepare(pool.server)
    load = pool.server.start("pgbench", paths.postgresql("pgbench"), "-n", "-c", CLIENTS, "-j", 2, "-T", 4,
                             "-p", pool.port)
    for _ in range(ROUNDS):
        load.must_run()
        for command in ("PAUSE", "RECONNECT", "RESUME", "RELOAD"):
            pool.admin(command)
    load.wait(40)
    check("number of failed transactions: 0 " in load.output(), f"pgbench saw failures:\n{load.output()}")
    pgbench.check_balances(pool.server)
