"""The counters that a peer keeps in a file (peer.h, struct progress), read while it runs or after its death."""

import mmap
import struct
from collections import namedtuple

HEADER = struct.Struct("=IIII")          # pid, port, ready, leave
RUNNING, DONE = 1, 2                     # values of `ready`
ENTRY = struct.Struct("=QQQIHH")         # one connection
KINDS = ("up", "down", "duplex", "pingpong")
ENDS = ("open", "ended", "reset", "wrong")

Entry = namedtuple("Entry", "written writing verified end local_port remote_port")


class Progress:
    """One peer's file. It exists from before the peer's start, so that it can be watched from the beginning."""

    def __init__(self, path, connections):
        self.path = path
        self.connections = connections
        size = HEADER.size + 64 * ENTRY.size
        path.write_bytes(bytes(size))
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), size)

    @property
    def pid(self):
        return HEADER.unpack_from(self.memory)[0]

    @property
    def port(self):
        return HEADER.unpack_from(self.memory)[1]

    @property
    def ready(self):
        """All connections are made."""
        return HEADER.unpack_from(self.memory)[2] >= RUNNING

    @property
    def done(self):
        """All connections are closed, and the peer waits for `let_go`."""
        return HEADER.unpack_from(self.memory)[2] == DONE

    def let_go(self):
        self.memory[12:16] = struct.pack("=I", 1)

    def entry(self, number):
        values = ENTRY.unpack_from(self.memory, HEADER.size + number * ENTRY.size)
        return Entry(*values[:3], ENDS[values[3]], *values[4:])

    def entries(self):
        return [self.entry(number) for number in range(self.connections)]

    def close(self):
        self.memory.close()


def kind(number):
    """What connection `number` carries; see peer.c."""
    return KINDS[number % len(KINDS)]


def flows(number):
    """The directions of a connection that carry a stream, by who writes: "client", "server"."""
    return {"up": ["client"], "down": ["server"]}.get(kind(number), ["client", "server"])
