"""MariaDB: contents written and read back, dump and restore, many clients at once, a replica."""

import hashlib

from apps.support import files, mariadb
from apps.support.mariadb import DATABASE, Mariadb
from apps.support.marks import slow
from testkit import wait
from testkit.failure import check

version = mariadb.version

BLOBS = [*files.SIZES, 3_000_001]
ROWS = 20_000
CLIENTS = 8
TRANSFERS = 4_000

CREATE = """
CREATE TABLE blobs (id INT PRIMARY KEY, body LONGBLOB) ENGINE=InnoDB;
CREATE TABLE numbers (id INT PRIMARY KEY, text VARCHAR(200), INDEX (text)) ENGINE=InnoDB;
CREATE TABLE accounts (id INT PRIMARY KEY, balance INT) ENGINE=InnoDB;
CREATE TABLE history (id INT AUTO_INCREMENT PRIMARY KEY, account INT, delta INT) ENGINE=InnoDB;
INSERT INTO accounts SELECT seq, 0 FROM seq_1_to_50;
"""

TRANSFER = "CALL transfer(1 + FLOOR(RAND() * 50), FLOOR(RAND() * 2000) - 1000)"
PROCEDURE = """
DELIMITER //
CREATE PROCEDURE transfer(chosen INT, amount INT) BEGIN
  START TRANSACTION;
  UPDATE accounts SET balance = balance + amount WHERE id = chosen;
  INSERT INTO history (account, delta) VALUES (chosen, amount);
  COMMIT;
END //
"""

WRONG = """
SELECT COUNT(*) FROM accounts a
WHERE balance <> (SELECT COALESCE(SUM(delta), 0) FROM history h WHERE h.account = a.id)
"""


def fill(case, server):
    """Blobs of many sizes and many rows, sent as statements of up to several megabytes."""
    source = case.tmp / "fill.sql"
    rows = ",".join(f"({n},'{row_text(n)}')" for n in range(ROWS))
    with open(source, "w") as out:
        out.write(CREATE)
        for number, size in enumerate(BLOBS):
            out.write(f"INSERT INTO blobs VALUES ({number}, x'{files.content(size, seed=number).hex()}');\n")
        out.write(f"INSERT INTO numbers VALUES {rows};\n")
    server.feed(source)


def row_text(number):
    return hashlib.sha256(b"%d" % number).hexdigest() * 2


def check_contents(server, database=DATABASE):
    """Every byte comes back to the client, which gets the blobs in hexadecimal digits."""
    for number, size in enumerate(BLOBS):
        body = bytes.fromhex(server.query(f"SELECT HEX(body) FROM blobs WHERE id = {number}", database))
        check(body == files.content(size, seed=number), f"blob {number} of {size} bytes came changed ({len(body)})")
    rows = server.query("SELECT id, text FROM numbers ORDER BY id", database).splitlines()
    check(rows == [f"{n}\t{row_text(n)}" for n in range(ROWS)], f"{len(rows)} rows came changed")


def start(case, *options):
    case.expect_ring("mariadbd", "mariadb")
    server = Mariadb(case, "mariadbd", "--max-allowed-packet=64M", *options)
    fill(case, server)
    return server


@slow(120)
def test_contents(case):
    """Blobs from nothing to 3 MB and 20,000 rows are stored, and read back, byte by byte the same."""
    check_contents(start(case))


@slow(120)
def test_dump_and_restore(case):
    """mariadb-dump of a database is fed to another one: same contents, and a second dump is the same text."""
    case.expect_ring("mariadb-dump")
    server = start(case)
    first = dump(server, DATABASE)
    copy = case.tmp / "dump.sql"
    copy.write_text(first)
    server.query("CREATE DATABASE restored", "")
    server.feed(copy, "restored")
    check_contents(server, "restored")
    check(dump(server, "restored") == first, "the dump of the restored database differs from the first dump")


def dump(server, database):
    return server.run("mariadb-dump", "--skip-comments", "--hex-blob", "--single-transaction", database)


def load(case, *options):
    """Transactions of eight clients at once; afterwards every account must be the sum of its history."""
    case.expect_ring("mariadb-slap")
    server = start(case, *options)
    procedure = case.tmp / "procedure.sql"
    procedure.write_text(PROCEDURE)
    server.feed(procedure)
    server.run("mariadb-slap", f"--create-schema={DATABASE}", f"--concurrency={CLIENTS}", f"--query={TRANSFER}",
               f"--number-of-queries={TRANSFERS}", "--no-drop")
    count = int(server.query("SELECT COUNT(*) FROM history"))
    check(count == TRANSFERS, f"{count} transfers in the history, not {TRANSFERS}")
    check(server.query(WRONG) == "0", "accounts differ from the sums of their history")
    return server


@slow(120)
def test_load(case):
    """Eight clients of mariadb-slap with transactions, a thread for each connection."""
    load(case)


@slow(120)
def test_load_with_thread_pool(case):
    """The same with the thread pool, which waits for its connections by epoll."""
    load(case, "--thread-handling=pool-of-threads", "--thread-pool-size=2")


@slow(180)
def test_replica(case):
    """A second server follows the first over TCP while that is under load; the tables must become the same."""
    case.expect_ring("replica")
    replica = Mariadb(case, "replica", "--max-allowed-packet=64M", "--server-id=2")
    primary_options = ("--server-id=1", "--log-bin", "--binlog-format=ROW")
    primary = Mariadb(case, "mariadbd", "--max-allowed-packet=64M", *primary_options)
    follow(replica, primary)
    fill(case, primary)
    primary.query("UPDATE numbers SET text = REVERSE(text) WHERE id % 3 = 0; DELETE FROM numbers WHERE id % 7 = 0")
    case.expect_ring("mariadbd", "mariadb")
    position = primary.query("SELECT @@gtid_binlog_pos")
    reached = replica.query(f"SELECT MASTER_GTID_WAIT('{position}', 60)")
    check(reached == "0", f"the replica has not come to {position}: {replica.query('SHOW SLAVE STATUS')}")
    tables = "CHECKSUM TABLE blobs, numbers, accounts"
    check(replica.query(tables) == primary.query(tables), "the tables of the replica differ")
    replica.query("STOP SLAVE")


def follow(replica, primary):
    replica.query(f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={primary.port}, MASTER_USER='root', "
                  "MASTER_USE_GTID=slave_pos; START SLAVE")
    wait.until(lambda: replica.query("SHOW STATUS LIKE 'Slave_running'") == "Slave_running\tON",
               "the replica to connect", 30, replica.process.must_run)
