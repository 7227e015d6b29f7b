"""Questions to resolvers go to the proxy's, and its answers come from whom was asked."""

import contextlib
import shutil
import socket
from pathlib import Path

from capture import clients, recorders
from capture.envoy import INBOUND, OUTBOUND
from capture.tasks import PROXY, ROOT
from testkit.failure import check

PORT, PROXY_PORT = 53, 15053
# Of which nobody is there.
RESOLVERS = {4: ("10.96.0.53", "10.96.0.54"), 6: ("fd00:96::53", "fd00:96::54")}
NUMBER = 10
ETC_NETNS = Path("/etc/netns")


@contextlib.contextmanager
def asker(world, *flags, servers=None):
    """A pod whose questions are captured; `servers` are those of its resolv.conf."""
    try:
        pod = world.pod("asker", NUMBER)
        resolver = pod.peer("resolver.py", "proxy", PROXY_PORT, "127.0.0.1", "::1", owner=PROXY)
        pod.wait_listening(resolver, PROXY_PORT)
        recorders.start(pod, ports=(OUTBOUND, INBOUND))
        if world is world.testbed.twin:
            world.capture(pod, dns=True)
        else:
            with resolv_conf(pod, servers):
                world.capture(pod, *flags)
        yield pod
    finally:
        world.remove("asker")


@contextlib.contextmanager
def resolv_conf(pod, servers):
    """As ip-netns(8) has it, while the pod is being captured."""
    directory = ETC_NETNS / pod.namespace.name
    if servers is not None:
        directory.mkdir(parents=True)
        (directory / "resolv.conf").write_text("".join(f"nameserver {server}\n" for server in servers))
    try:
        yield
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def both(testbed, function):
    """With every question captured."""
    def found(world):
        with asker(world, "--redirect-dns", "--capture-all-dns") as pod:
            return function(pod)
    return testbed.compare(found)


def unconnected(hosts, family):
    """One socket, one resolver after the other: who has answered, and as whom."""
    found = []
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(clients.PATIENCE)
        for host in hosts:
            sock.sendto(host.encode(), (host, PORT))
            text, source = sock.recvfrom(4096)
            told = clients.json.loads(text)
            found.append((told["name"], told["question"], list(source[:2])))
    return found


def test_unconnected(testbed):
    for family, hosts in RESOLVERS.items():
        found = both(testbed, lambda pod: pod.run(unconnected, [*hosts, *hosts], clients.FAMILIES[family]))
        check(found == [("proxy", host, [host, PORT]) for host in (*hosts, *hosts)], f"{found}")


def test_unconnected_mapped(testbed):
    hosts = [f"::ffff:{host}" for host in RESOLVERS[4]]
    found = both(testbed, lambda pod: pod.run(unconnected, hosts, socket.AF_INET6))
    check(found == [("proxy", host, [host, PORT]) for host in hosts], f"{found}")


def connected(hosts, kind):
    """One socket for each question."""
    found = []
    for host in hosts:
        with socket.socket(clients.family_of(host), kind) as sock:
            sock.settimeout(clients.PATIENCE)
            sock.connect((host, PORT))
            sock.sendall(f"{host}\n".encode())
            text, source = sock.recvfrom(4096)
            told = clients.json.loads(text)
            found.append((told["name"], told["question"].strip(), list(sock.getpeername()[:2]),
                          kind == socket.SOCK_STREAM or list(source[:2])))
    return found


def test_connected(testbed):
    for hosts in RESOLVERS.values():
        found = both(testbed, lambda pod: pod.run(connected, hosts, socket.SOCK_DGRAM))
        check(found == [("proxy", host, [host, PORT], [host, PORT]) for host in hosts], f"{found}")


def test_by_tcp(testbed):
    for hosts in RESOLVERS.values():
        found = both(testbed, lambda pod: pod.run(connected, hosts, socket.SOCK_STREAM))
        check(found == [("proxy", host, [host, PORT], True) for host in hosts], f"{found}")


def reconnected(hosts):
    """One socket is connected to one resolver after the other."""
    found = []
    with socket.socket(clients.family_of(hosts[0]), socket.SOCK_DGRAM) as sock:
        sock.settimeout(clients.PATIENCE)
        for host in hosts:
            sock.connect((host, PORT))
            sock.send(host.encode())
            text, source = sock.recvfrom(4096)
            found.append((clients.json.loads(text)["name"], list(source[:2]), list(sock.getpeername()[:2])))
    return found


def test_connected_again(testbed):
    for hosts in RESOLVERS.values():
        both(testbed, lambda pod: pod.run(reconnected, [*hosts, *hosts]))


def at_once(hosts):
    """Both are asked before either answers: both answers come."""
    with socket.socket(clients.family_of(hosts[0]), socket.SOCK_DGRAM) as sock:
        sock.settimeout(clients.PATIENCE)
        for host in hosts:
            sock.sendto(host.encode(), (host, PORT))
        answers = [sock.recvfrom(4096) for _ in hosts]
    return sorted(clients.json.loads(text)["question"] for text, _ in answers), {source[0] for _, source in answers}


def test_two_resolvers_at_once(testbed):
    """By one unconnected socket. Both answers come by one way: each comes from one of those that were asked."""
    with asker(testbed.ours, "--redirect-dns", "--capture-all-dns") as pod:
        for hosts in RESOLVERS.values():
            questions, sources = pod.run(at_once, hosts)
            check(questions == sorted(hosts) and sources <= set(hosts), f"{questions} from {sources}")


def test_of_the_proxy(testbed):
    """Its questions go to the resolver that it asks."""
    with real_resolver(testbed) as host, asker(testbed.ours, "--redirect-dns", "--capture-all-dns") as pod:
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            found = pod.run(connected, [host], kind, owner=PROXY)
            check(found[0][0] == "resolver", f"{found}")
        check(pod.run(unconnected, [host], socket.AF_INET, owner=PROXY)[0][0] == "resolver", "by an unconnected socket")


@contextlib.contextmanager
def real_resolver(testbed):
    outside = testbed.ours.outside
    process = outside.peer("resolver.py", "resolver", PORT, *outside.ip.values(), owner=ROOT)
    try:
        outside.wait_listening(process, PORT)
        yield outside.ip[4]
    finally:
        outside.kill(process)


def test_resolvers_of_the_pod(testbed):
    """Only what is asked of those of its resolv.conf is captured."""
    named = RESOLVERS[4][0]
    with real_resolver(testbed) as other, asker(testbed.ours, "--redirect-dns", servers=[named]) as pod:
        found = pod.run(unconnected, [named, other, named], socket.AF_INET)
        check([one[0] for one in found] == ["proxy", "resolver", "proxy"], f"{found}")
        found = pod.run(connected, [named, other], socket.SOCK_DGRAM)
        check([one[0] for one in found] == ["proxy", "resolver"], f"{found}")


def test_without_resolvers(testbed):
    """A resolv.conf that names none: nothing is captured."""
    with real_resolver(testbed) as host, asker(testbed.ours, "--redirect-dns", servers=[]) as pod:
        check(pod.run(unconnected, [host], socket.AF_INET)[0][0] == "resolver", "by an unconnected socket")
        check(pod.run(connected, [host], socket.SOCK_DGRAM)[0][0] == "resolver", "by a connected socket")


def test_off(testbed):
    """Without --redirect-dns."""
    with real_resolver(testbed) as host, asker(testbed.ours) as pod:
        check(pod.run(unconnected, [host], socket.AF_INET)[0][0] == "resolver", "by an unconnected socket")
        check(pod.run(connected, [host], socket.SOCK_DGRAM)[0][0] == "resolver", "by a connected socket")
