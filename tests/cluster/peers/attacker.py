#!/usr/bin/env python3
"""attacker.py ATTACK [WORDS]: what a program in a pod tries, as its root. Prints one line of JSON: what came of it.

  files                 reaches for sockets and files that are not the pod's
  commands              tells the broker what only the operator may
  garbage SECONDS       sends the broker records of any length and content, with descriptors of any kind
  locks                 locks all that it sees of the broker's and the library's directories; stays
  members               joins as often as it may, asks and reads no answer; stays until its standard input ends
  links SECONDS         connects members with each other as often as it may and releases nothing; stays
  silence HOST PORT...  opens connections there and says nothing; stays
  calls HOST PORT       opens as many connections as it can; stays
"""

import contextlib
import errno
import fcntl
import itertools
import os
import random
import select
import socket
import struct
import sys
import time
from pathlib import Path

import attempts
from attempts import LIBC, checked, fail, in_namespaces

BROKER = os.environ.get("SIDESTEP_BROKER", "/run/sidestep/member/broker")
LIBRARY = os.environ.get("ATTACKED_LIBRARY") or os.environ.get("LD_PRELOAD", "").split(":")[-1]
# As crates/abi has them: 48 bytes, little-endian.
RECORD = struct.Struct("<IIQQQIIII")
HELLO, OFFER, SETTLE, WELCOME, LINK, SLOT, REFUSED = 1, 2, 6, 16, 18, 20, 21
COMMANDS = {"carry": 8, "status": 32, "detach": 33, "attach": 34}
DONE = 35
VERSION = 8
SO_COOKIE = 57
# Answers that a member leaves unread.
UNREAD = 400
MEMBERS_WITH_LINKS = 150
MS_REMOUNT, MS_BIND = 32, 4096
FORBIDDEN_SOCKETS = ("/run/sidestep/agent.sock", "/run/sidestep-operator/broker", "/run/sidestep/rings", "/var/run/nri/nri.sock",
                     "/run/containerd/containerd.sock", "\0sidestep-0", "\0sidestep-operator")


def record(kind, version=VERSION, offer=0, arg=0, arg2=0):
    return RECORD.pack(kind, version, offer, arg, arg2, 0, 0, 0, 0)


def connect():
    broker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    broker.settimeout(5)
    broker.connect(BROKER)
    return broker


def join():
    """A member; None if the broker takes no more."""
    with contextlib.suppress(OSError):
        broker = connect()
        broker.send(record(HELLO, arg=4096))
        if receive(broker)[0] == WELCOME:
            return broker
        broker.close()
    return None


def receive(broker):
    """Kind and reason of the next record; (0, 0) at the end."""
    said, files, _, _ = socket.recv_fds(broker, RECORD.size, 1)
    for file in files:
        os.close(file)
    fields = RECORD.unpack(said) if len(said) == RECORD.size else (0,) * 9
    return fields[0], fields[3]


# --- files ----------------------------------------------------------------------------------------


def files():
    """All that was possible, which must be nothing."""
    library = Path(LIBRARY)
    member = Path(BROKER).parent
    found = {"possible": [], "beside the broker's socket": sorted(set(os.listdir(member)) - {Path(BROKER).name})}
    for place in (library.parent, member):
        for what, attempt in ways_to_change(place, library if place == library.parent else Path(BROKER)).items():
            if succeeds(attempt):
                found["possible"].append(f"{what} {place}")
    for path in FORBIDDEN_SOCKETS:
        if any(succeeds(lambda path=path, kind=kind: reach(path, kind)) for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)):
            found["possible"].append(f"connect to {path!r}")
    foreign = [pid for pid in os.listdir("/proc") if pid.isdecimal() and os.path.exists(f"/proc/{pid}/root/run/sidestep-operator")]
    return {**found, "processes with the operator's directory": foreign}


def ways_to_change(place, file):
    other = place / "attack"
    return {
        "create in": lambda: other.write_text(""),
        "link in": lambda: other.symlink_to("/etc/passwd"),
        "rename in": lambda: file.rename(other),
        "remove from": file.unlink,
        "write in": lambda: os.close(os.open(file, os.O_WRONLY | os.O_TRUNC) if not file.is_socket() else fail(errno.ENXIO)),
        "change modes in": lambda: file.chmod(0o777),
        "change owners in": lambda: os.chown(file, 1000, 1000),
        "set attributes in": lambda: os.setxattr(file, "user.attack", b"1"),
        "mount anew": lambda: mount(place, MS_REMOUNT | MS_BIND),
        "mount over": lambda: mount_over(place),
        "mount anew, with namespaces of its own,": lambda: in_namespaces(lambda: mount(place, MS_REMOUNT | MS_BIND)),
        "unmount, with namespaces of its own,": lambda: in_namespaces(lambda: checked(LIBC.umount2(str(place).encode(), 0))),
    }


def succeeds(attempt):
    try:
        attempt()
        return True
    except OSError:
        return False


def mount(place, flags):
    checked(LIBC.mount(None, str(place).encode(), None, flags, None))


def mount_over(place):
    checked(LIBC.mount(b"tmpfs", str(place).encode(), b"tmpfs", 0, None))


def reach(path, kind):
    with socket.socket(socket.AF_UNIX, kind) as client:
        client.connect(path)


def locks():
    """Also exclusive ones need no right to write."""
    held = []
    for place in (Path(BROKER).parent, Path(LIBRARY).parent):
        for path in (place, *place.iterdir()):
            with contextlib.suppress(OSError):
                held.append(os.open(path, os.O_RDONLY))
                fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    return {"locked": len(held)}, held


# --- the broker -----------------------------------------------------------------------------------


def commands():
    """The commands that were carried out: must be none. (That it should stay as long as we do, the broker grants to every root.)"""
    obeyed = []
    for (name, kind), joins in itertools.product(COMMANDS.items(), (False, True)):
        broker = join() if joins else connect()
        with contextlib.suppress(OSError):
            broker.send(record(kind))
            while (answer := receive(broker)[0]) != 0:
                if answer == DONE:
                    obeyed.append(name)
                    break
        broker.close()
    return {"obeyed": obeyed}


def garbage(seconds):
    chance = random.Random(1)
    pipe, pair, member = os.pipe(), socket.socketpair(), None
    kinds = [pipe[0], pipe[1], pair[0].fileno(), os.open("/dev/null", os.O_RDWR), os.memfd_create("x"),
             os.open(".", os.O_RDONLY), select.epoll().fileno()]
    deadline, sent, hung_up = time.monotonic() + float(seconds), 0, 0
    while time.monotonic() < deadline:
        member = member or (join() if chance.random() < 0.7 else connect_or_none())
        if member is None:
            continue
        sane = record(chance.choice([*range(40), 1 << 31]), chance.choice([VERSION, 0, 9, 2**32 - 1]), chance.choice([0, 1, 2**64 - 1]),
                      chance.choice([0, 4096, 2**63, chance.getrandbits(64)]))
        data = chance.choice([sane, sane, sane, os.urandom(RECORD.size), b"", os.urandom(chance.randrange(1, 4000))])
        attached = chance.sample([*kinds, member.fileno()], chance.choice([0, 0, 1, 1, 5]))
        try:
            member.setblocking(False)
            socket.send_fds(member, [data], attached)
            sent += 1
        except (BlockingIOError, BrokenPipeError, ConnectionResetError, OSError):
            member.close()
            member = None
            hung_up += 1
    return {"sent": sent, "hung_up": hung_up}


def connect_or_none():
    with contextlib.suppress(OSError):
        return connect()
    return None


def members():
    held = list(iter(join, None))
    for member in held:
        member.setblocking(False)
    for _, member in itertools.product(range(UNREAD), held):
        with contextlib.suppress(OSError):
            member.send(record(SETTLE))
    # Those that the broker has not hung up on meanwhile.
    return {"held": len(held)}, held


def links(seconds):
    """Pairs of members share memory: one connection each at first, then as many as there is time for."""
    held = [member for member in (join() for _ in range(MEMBERS_WITH_LINKS)) if member]
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    seen = {"members": len(held), "connections": 0, "refused": {}}
    numbers, deadline = itertools.count(1), time.monotonic() + float(seconds)
    pairs = list(itertools.combinations(held, 2))
    for one, other in itertools.cycle(pairs):
        if time.monotonic() > deadline:
            break
        try:
            with socket.create_connection(listener.getsockname()) as here, listener.accept()[0] as there:
                for member, end in ((one, here), (other, there)):
                    cookie = struct.unpack("Q", end.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8))[0]
                    socket.send_fds(member, [record(OFFER, offer=next(numbers), arg=cookie)], [end.fileno()])
                answers = [answer_to_offer(member) for member in (one, other)]
        except OSError as error:
            answers = [(0, type(error).__name__)]
        if all(kind == SLOT for kind, _ in answers):
            seen["connections"] += 1
        for kind, reason in answers:
            if kind != SLOT:
                seen["refused"][str(reason)] = seen["refused"].get(str(reason), 0) + 1
    return seen, held


def answer_to_offer(member):
    while True:
        kind, reason = receive(member)
        if kind in (SLOT, REFUSED, 0):
            return kind, reason


# --- servers --------------------------------------------------------------------------------------


def silence(host, *ports):
    """Some say nothing, some half of a request."""
    held = {port: [] for port in ports}
    for number, port in itertools.product(range(1000), ports):
        with contextlib.suppress(OSError):
            client = socket.create_connection((host, int(port)), timeout=2)
            if number % 2:
                client.send(b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: ")
            held[port].append(client)
    return {port: len(clients) for port, clients in held.items()}, held


def calls(host, port):
    held = []
    for _ in range(15000):
        client = socket.socket()
        client.setblocking(False)
        try:
            client.connect((host, int(port)))
        except BlockingIOError:
            held.append(client)
        except OSError:
            break
    return {"calls": len(held)}, held


ATTACKS = {attack.__name__: attack for attack in (files, commands, garbage, locks, members, links, silence, calls)}


def without_library():
    """Sockets as the kernel has them: this attacker speaks to the broker itself."""
    if os.environ.pop("LD_PRELOAD", None):
        os.environ["ATTACKED_LIBRARY"] = LIBRARY
        os.execv(sys.executable, [sys.executable, *sys.argv])


if __name__ == "__main__":
    if sys.argv[1] not in ("files", "calls"):
        without_library()
    attempts.run(ATTACKS)
