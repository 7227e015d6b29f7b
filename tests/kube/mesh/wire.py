"""Reads on the node the packets between the pods."""

import re
import secrets
import socket
import struct

from testkit.failure import Failure

ETH_P_ALL = 3
SOL_PACKET, PACKET_STATISTICS = 263, 6
SO_RCVBUFFORCE = 33
ROOM = 256 << 20
# The largest frame, before segmentation (GSO).
FRAME = 1 << 18
MARK = re.compile(rb"sidestep-mark-[0-9a-f]{16}")


def mark():
    """A unique word."""
    return f"sidestep-mark-{secrets.token_hex(8)}"


class Wire:
    """Receives each frame at every interface of the node, from the construction of this object on; `without`: interfaces whose frames do
    not count, since the tests' own commands go there."""

    def __init__(self, node, without=()):
        self.without = without
        self.socket = node.call(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM)
        self.socket.setblocking(False)
        self.frames = 0

    def marks(self):
        """All marks in frames since the last call. A frame is received when it is sent, so none is still to come."""
        found = set()
        while True:
            try:
                frame, (interface, *_) = self.socket.recvfrom(FRAME)
            except BlockingIOError:
                break
            if interface in self.without:
                continue
            self.frames += 1
            found.update(mark.decode() for mark in MARK.findall(frame))
        _, lost = struct.unpack("II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        if lost:
            raise Failure(f"{lost} frames were sent that nobody could look at")
        return found
