"""PostgreSQL: a process for each connection, forked after accept. pgbench with books that must balance, large results,
COPY in both directions, notifications between clients."""

from apps.support import pgbench, postgresql
from apps.support.marks import slow
from apps.support.postgresql import Postgresql
from testkit import net
from testkit.failure import check

version = postgresql.version

CLIENTS = 4
SECONDS = 3
COPIED_ROWS = 40_000
NOTES = 500
LISTENERS = 3
# The one that has psycopg2, and that every user may run.
DEBIAN_PYTHON = "/usr/bin/python3"


def test_pgbench(case):
    """pgbench with four clients; afterwards the sums of its tables must be equal."""
    case.expect_ring("pgbench", "postgresql")
    server = Postgresql(case)
    pgbench.prepare(server)
    pgbench.load(server, CLIENTS, "-T", SECONDS)
    pgbench.check_balances(server)


def test_large_results(case):
    """Results of many megabytes, made from nothing but a number, compared with the same made here."""
    case.expect_ring("psql", "postgresql")
    server = Postgresql(case)
    rows, width = 3_000, 1_000
    lines = server.query(f"SELECT n || ':' || repeat(chr(97 + n % 26), {width}) FROM generate_series(1, {rows}) n")
    wanted = [f"{n}:{chr(97 + n % 26) * width}" for n in range(1, rows + 1)]
    check(lines.splitlines() == wanted, "a large result came changed")


@slow(90)
def test_copy(case):
    """COPY of megabytes into a table and back, as text and in the binary format; the files must be the same."""
    case.expect_ring("psql", "postgresql", share=0.5)
    server = Postgresql(case)
    rows = "".join(f"{n}\t{'x' * (n % 300)}\\t{n * 7919}\n" for n in range(COPIED_ROWS))
    sent = server.home / "sent"
    sent.write_text(rows)
    server.query("CREATE TABLE copied (id int PRIMARY KEY, body text); CREATE TABLE twice (LIKE copied)")
    copy(server, "copied", "FROM", sent)
    for table, target, kind in (("copied", "text", "text"), ("copied", "binary", "binary")):
        copy(server, table, "TO", server.home / target, kind)
    copy(server, "twice", "FROM", server.home / "binary", "binary")
    copy(server, "twice", "TO", server.home / "again")
    for name in ("text", "again"):
        check((server.home / name).read_text() == rows, f"the rows copied out to '{name}' are not those copied in")


def copy(server, table, direction, path, kind="text"):
    source = f"(SELECT * FROM {table} ORDER BY id)" if direction == "TO" else table
    server.query(f"\\copy {source} {direction} '{path}' WITH (FORMAT {kind})")


@slow(60)
def test_notifications(case):
    """Three clients (psycopg2) listen while a fourth sends 500 notifications; each must get all of them, in order."""
    case.expect_ring("client", "postgresql")
    server = Postgresql(case)
    client = server.start("client", DEBIAN_PYTHON, server.readable("pg_notify.py"), "--count", NOTES,
                          "--listeners", LISTENERS, "--address", f"host={net.LOOPBACK} port={server.port}")
    client.wait(50)
    check(f'"right": {LISTENERS}' in client.output(), f"not all listeners got all: {client.output()}")
