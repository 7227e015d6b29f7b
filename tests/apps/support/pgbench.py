"""pgbench: its tables, its load, and the sums that must be equal afterwards."""

from testkit.failure import check

# Every pgbench transaction adds one amount to an account, a teller, a branch and the history.
BALANCES = """
SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
   AND (SELECT sum(tbalance) FROM pgbench_tellers)  = (SELECT sum(delta) FROM pgbench_history)
   AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history)
   AND (SELECT count(*) > 0 FROM pgbench_history)
"""


def prepare(server):
    server.client("pgbench", "-i", "-q", "-s", 1)


def load(server, clients, *options, port=None):
    """Runs transactions without a failure."""
    output = server.client("pgbench", "-n", "-c", clients, "-j", 2, *options, port=port)
    check("number of failed transactions: 0 " in output, f"pgbench saw failures:\n{output}")


def check_balances(server):
    check(server.query(BALANCES) == "t", "the sums of accounts, tellers, branches and history differ")
