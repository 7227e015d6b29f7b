"""Kinds of sockets and of calls."""

import ctypes
import errno
import os
import socket
import struct

from capture import clients, recorders
from capture.envoy import OUTBOUND
from capture.pods import local_ports
from capture.recorders import ask, met
from capture.worlds import PORT
from testkit import wait
from testkit.failure import check

HOST = "10.96.0.77"
HOST6 = "fd00:96::77"
HOSTS = {4: HOST, 6: HOST6}
OTHER = "10.96.0.78"
AF_UNSPEC = 0
TCP_FASTOPEN_CONNECT = 30
IPPROTO_MPTCP = 262
# CLOSE_WAIT, LAST_ACK
CLOSING = {"08", "09"}
libc = ctypes.CDLL(None, use_errno=True)


def both(testbed, function, *options, running=True):
    """What the function says of a recorded pod in each world, which must be the same."""
    def found(world):
        with recorders.pod(world, *options, running=running) as pod:
            return function(pod)
    return testbed.compare(found)


# --- one socket, several connections --------------------------------------------------------------------------------

def connect(sock, host, port=PORT):
    try:
        sock.connect((host, port))
        return "connected"
    except OSError as error:
        return clients.describe(error)


def disconnect(sock):
    """connect(AF_UNSPEC), of which no program of the kernel is told."""
    address = struct.pack("H14x", AF_UNSPEC)
    if libc.connect(sock.fileno(), address, len(address)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def after_refusal(host, other, start):
    """The first connect() is refused; then the proxy starts; then the same socket dials another address."""
    with socket.socket(clients.family_of(host)) as sock:
        sock.settimeout(clients.PATIENCE)
        said = [connect(sock, host), connect(sock, host)]
        start.send(b".")
        start.recv(1)
        said.append(connect(sock, other))
        return said, ask(sock)["original"], list(sock.getpeername()[:2])


def test_connect_after_a_refused_one(testbed):
    def on(pod):
        mine, theirs = socket.socketpair()
        with mine, theirs:
            task = pod.start(after_refusal, HOST, OTHER, theirs)
            mine.recv(1)
            recorders.start(pod)
            mine.send(b".")
            return task.result()
    said, original, peer = both(testbed, on, running=False)
    check((said[0], said[-1]) == ("ECONNREFUSED", "connected"), f"{said}")
    check(original == peer == [OTHER, PORT], f"the proxy was told {original}, the program {peer}")


def after_disconnect(hosts):
    """The same socket, again and again: another Service, the loopback, and back."""
    found = []
    with socket.socket(clients.family_of(hosts[0])) as sock:
        sock.settimeout(clients.PATIENCE)
        for host in hosts:
            sock.connect((host, PORT))
            told = sock.recv(4096)
            found.append((host, sock.getpeername()[0], sock.getsockname()[0], b'"original": ["' in told,
                          host.encode() in told))
            disconnect(sock)
    return found


def test_disconnect_and_connect(testbed):
    both(testbed, lambda pod: pod.run(after_disconnect, [HOST, OTHER, HOST]))
    both(testbed, lambda pod: pod.run(after_disconnect, [HOST6, "fd00:96::78"]))


def loopback_after_diversion(host):
    """A program of the pod itself is dialled by a socket that was diverted before."""
    with socket.socket() as sock:
        sock.settimeout(clients.PATIENCE)
        sock.connect((host, PORT))
        ask(sock)
        disconnect(sock)
        sock.connect(("127.0.0.1", PORT))
        return sock.getsockname()[0], sock.getpeername()[0], clients.json.loads(sock.recv(4096))["peer"][0]


def test_loopback_after_a_diverted_connection(testbed):
    both(testbed, lambda pod: pod.run(loopback_after_diversion, HOST))


# --- many connections -----------------------------------------------------------------------------------------------

def two_ports(host):
    with socket.create_connection((host, 80)) as one, socket.create_connection((host, 443)) as other:
        told = [(ask(conn)["original"], list(conn.getpeername()[:2])) for conn in (one, other)]
        return told + [recorders.again(conn)["original"] for conn in (other, one)]


def test_two_ports_of_one_host(testbed):
    for host in HOSTS.values():
        found = both(testbed, lambda pod: pod.run(two_ports, host))
        check(found[0][0] == [host, 80] and found[3] == [host, 80], f"{found}")


def idle(host, others):
    with socket.create_connection((host, 80)) as one:
        first = ask(one)
        for _ in range(others):
            with socket.create_connection((host, 81)) as other:
                ask(other)
        return first == recorders.again(one), list(one.getpeername()[:2])


def test_idle_connection(testbed):
    """Many others come and go; nothing of it is forgotten."""
    others = 20000 if testbed.slow else 1000
    with recorders.pod(testbed.ours) as pod:
        found = pod.run(idle, HOST, others, seconds=300)
    check(found == (True, [HOST, 80]), f"{found}")


def finish_first(host):
    """The proxy's end is closed a moment after this one."""
    return met(host, PORT)["original"]


def test_the_proxy_finishes_later(testbed):
    """Its last word is acknowledged though the program's socket is no more; else the port could not be used again."""
    for family, host in HOSTS.items():
        with recorders.pod(testbed.ours, "--slow") as pod:
            recorder = pod.processes[-1]
            check(pod.run(finish_first, host) == [host, PORT], f"{host} was not told")
            wait.until(lambda: OUTBOUND not in local_ports(recorder.pid, family, CLOSING),
                       f"the proxy's end of an IPv{family} connection to be closed", 5)


# --- addresses of its own -------------------------------------------------------------------------------------------

def bound(host, own, port):
    sock = socket.socket(clients.family_of(host))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((own, port))
    found = met(host, PORT, sock)
    return found


def test_bound_address(testbed):
    """bind() to the pod's address, without a port."""
    for family, host in HOSTS.items():
        both(testbed, lambda pod: pod.run(bound, host, pod.ip[family], 0))


def test_bound_port(testbed):
    """bind() to a port, or to both; the proxy sees the same source as with iptables."""
    for family, host in HOSTS.items():
        both(testbed, lambda pod: pod.run(bound, host, pod.ip[family], 41234))
        both(testbed, lambda pod: pod.run(bound, host, "0.0.0.0" if family == 4 else "::", 41235))


def test_bound_port_mapped(testbed):
    """An IPv6 socket that is bound to a port dials an IPv4 address."""
    both(testbed, lambda pod: pod.run(bound, f"::ffff:{HOST}", "::", 41236))


def on_loopback_device(host):
    with socket.socket(clients.family_of(host)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
        sock.settimeout(0.5)
        return connect(sock, host)


def test_bound_to_the_loopback_device(testbed):
    """What leaves by lo stays inside."""
    both(testbed, lambda pod: pod.run(on_loopback_device, HOST, owner=(0, 0)))
    both(testbed, lambda pod: pod.run(on_loopback_device, pod.ip[4], owner=(0, 0)))


# --- other ways to dial ---------------------------------------------------------------------------------------------

def mptcp(host):
    return met(host, PORT, socket.socket(clients.family_of(host), socket.SOCK_STREAM, IPPROTO_MPTCP))


def test_mptcp_client(testbed):
    """The proxy speaks TCP."""
    for host in HOSTS.values():
        found = both(testbed, lambda pod: pod.run(mptcp, host))
        check(found["listener"] == OUTBOUND and found["original"] == [host, PORT], f"{found}")


def test_mptcp_proxy(testbed):
    """A proxy whose listeners speak MPTCP is told what was dialled, too; by conntrack it is not."""
    with recorders.pod(testbed.ours, "--mptcp") as pod:
        for host in HOSTS.values():
            for dial in (met, mptcp):
                found = pod.run(dial, host, *([PORT] if dial is met else []))
                check((found["original"], found["peer"]) == ([host, PORT],) * 2, f"{dial.__name__}: {found}")


def test_mptcp_of_the_proxy(testbed):
    """Its connections go where it wants, MPTCP or not."""
    def on(world):
        with recorders.pod(world) as pod:
            sock = pod.run(mptcp_greeting, world.outside.ip[4], owner=(1337, 1337))
            return sock["name"]
    check(testbed.compare(on) == "outside", "the proxy's own connection was captured")


def mptcp_greeting(host):
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, IPPROTO_MPTCP)
    with clients.Conn(host, PORT, sock) as conn:
        return conn.line()


def fast_open(host):
    """Data in the call that dials, and an option that makes the first write dial."""
    found = []
    with socket.socket(clients.family_of(host)) as sock:
        sock.sendto(b".", socket.MSG_FASTOPEN, (host, PORT))
        sock.settimeout(clients.PATIENCE)
        found.append([ask(sock)["original"], list(sock.getpeername()[:2])])
    with socket.socket(clients.family_of(host)) as sock:
        sock.setsockopt(socket.SOL_TCP, TCP_FASTOPEN_CONNECT, 1)
        sock.connect((host, PORT))
        sock.sendall(b".")
        sock.settimeout(clients.PATIENCE)
        found.append([ask(sock)["original"], list(sock.getpeername()[:2])])
    return found


def test_fast_open(testbed):
    """Twice: the second time the client has the server's cookie."""
    for family, host in HOSTS.items():
        def on(pod):
            return [pod.run(fast_open, host) for _ in range(2)]
        with recorders.pod(testbed.ours, "--fastopen") as pod:
            pod.run(allow_fast_open, owner=(0, 0))
            found = on(pod)
        check(found == [[[[host, PORT]] * 2] * 2] * 2, f"IPv{family}: {found}")


def allow_fast_open():
    with open("/proc/sys/net/ipv4/tcp_fastopen", "w") as file:
        file.write("3")


def not_blocking(host):
    """connect() that says EINPROGRESS, and its outcome."""
    with socket.socket(clients.family_of(host)) as sock:
        sock.setblocking(False)
        said = errno.errorcode.get(sock.connect_ex((host, PORT)))
        sock.settimeout(clients.PATIENCE)
        told = ask(sock)
        return said, told["original"]


def test_not_blocking(testbed):
    for host in HOSTS.values():
        both(testbed, lambda pod: pod.run(not_blocking, host))
