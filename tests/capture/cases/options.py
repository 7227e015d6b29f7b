"""getsockopt(): one option is answered, and everything else is left alone."""

import socket

from capture import recorders
from capture.worlds import PORT
from testkit.commands import run
from testkit.failure import check
from testkit.paths import program

RULES = 100
SO_ORIGINAL_DST = 80
SOL_IPV6 = 41


def add_rules(pod):
    lines = [f"-A INPUT -p tcp --dport {port} -j ACCEPT" for port in range(20000, 20000 + RULES)]
    text = "\n".join(["*filter", *lines, "COMMIT", ""])
    for command in ("iptables-legacy-restore", "ip6tables-legacy-restore"):
        run(*pod.cgroup.around(pod.namespace.around([program(command)])), stdin=text)


def test_iptables_legacy(testbed):
    """It reads its tables by getsockopt(), more than a page of them."""
    with recorders.pod(testbed.ours) as pod:
        add_rules(pod)
        for command in ("iptables-legacy", "ip6tables-legacy"):
            listed = run(*pod.cgroup.around(pod.namespace.around([program(command), "-n", "-L", "INPUT"])))
            count = sum(line.startswith("ACCEPT") for line in listed.splitlines())
            check(count == RULES, f"{command} lists {count} of {RULES} rules")


def greet(conn):
    """The line with which every server here begins."""
    while not conn.recv(4096).endswith(b"\n"):
        pass


def answers(host):
    """What a program hears that is not the proxy, of several levels and families."""
    said = []
    with socket.create_connection((host, PORT)) as conn:
        greet(conn)
        for level in (socket.SOL_IP, SOL_IPV6, socket.SOL_TCP, socket.SOL_SOCKET, 255):
            for size in (4, 16, 28, 128):
                try:
                    said.append((level, size, len(conn.getsockopt(level, SO_ORIGINAL_DST, size)) > 0))
                except OSError as error:
                    said.append((level, size, error.errno))
    return said


def test_of_the_program_itself(testbed):
    """Which has dialled: no connection was redirected to it. (conntrack would tell it what it knows: not compared.)"""
    with recorders.pod(testbed.ours) as pod:
        captured = pod.run(answers, "10.96.0.77")
        plain = testbed.ours.outside.run(answers, testbed.ours.outside.ip[4])
    check(captured == plain, f"captured: {captured}; without capture: {plain}")


def lengths(host):
    """Of options whose answers have other lengths."""
    with socket.create_connection((host, PORT)) as conn:
        greet(conn)
        return [len(conn.getsockopt(level, name, size)) for level, name, size in (
            (socket.SOL_SOCKET, socket.SO_TYPE, 4), (socket.SOL_TCP, 11, 232), (socket.SOL_TCP, 13, 16),
            (socket.SOL_SOCKET, socket.SO_RCVBUF, 4), (socket.SOL_SOCKET, 26, 1024))]


def test_other_options(testbed):
    with recorders.pod(testbed.ours) as pod:
        found = pod.run(lengths, "10.96.0.77")
        plain = testbed.ours.outside.run(lengths, testbed.ours.outside.ip[4])
    check(found == plain, f"captured: {found}; without capture: {plain}")
