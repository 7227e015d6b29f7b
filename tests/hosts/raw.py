"""An end of TCP connections that the test writes segment by segment. No kernel knows its address, so none answers for it."""

import ipaddress
import json
import queue
import random
import socket
import struct
import threading
import time

from hosts import segments
from hosts.segments import ACK, FIN, MSS, NOP, PSH, RST, SACK_PERMITTED, SCALE, SYN, Ends, option
from testkit.commands import run
from testkit.failure import Failure

ETH_P_ALL = 3
PACKET_IGNORE_OUTGOING = 23
MAC = bytes.fromhex("020000000066")
ADDRESSES = {4: "10.9.0.66", 6: "fd09::66"}
AGAIN = 0.25  # seconds until a segment is sent again


class Station:
    """The device of a host by which the end sends. Each connection has a port of its own."""

    def __init__(self, bed, host, other):
        self.other = other
        self.socket = host.namespace.call(lambda: self.opened(host.device))
        bed.stack.callback(self.close)
        self.other_mac = link_address(other)
        for address in ADDRESSES.values():
            other.namespace.ip(f"neigh replace {address} lladdr {MAC.hex(':')} dev {other.device} nud permanent")
        self.arrived = {}
        self.is_over = False
        self.thread = threading.Thread(target=self.hear)
        self.thread.start()

    @staticmethod
    def opened(device):
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        made.setsockopt(socket.SOL_PACKET if hasattr(socket, "SOL_PACKET") else 263, PACKET_IGNORE_OUTGOING, 1)
        made.bind((device, ETH_P_ALL))
        made.settimeout(0.2)
        return made

    def hear(self):
        while not self.is_over:
            try:
                frame = self.socket.recv(1 << 16)
            except TimeoutError:
                continue
            read = segments.read(frame)
            if read and read[0].target_port in self.arrived:
                self.arrived[read[0].target_port].put(read[0])

    def ends(self, family):
        addresses = ADDRESSES[family], self.other.addresses[family]
        return Ends(*map(ipaddress.ip_address, addresses), MAC, self.other_mac)

    def close(self):
        self.is_over = True
        self.thread.join()
        self.socket.close()


def link_address(host):
    shown = json.loads(run("ip", "-n", host.namespace.name, "-json", "link", "show", host.device))
    return bytes.fromhex(shown[0]["address"].replace(":", ""))


class Raw:
    """One connection. What a method does not say about a segment is what a correct TCP would send."""

    def __init__(self, station, port, to, family=4):
        self.station, self.port, self.to = station, port, to
        self.ends = station.ends(family)
        self.queue = station.arrived[port] = queue.SimpleQueue()
        # Some numbers wrap.
        self.isn = random.Random(port).getrandbits(32) if port % 2 else (1 << 32) - port % 1000
        self.una = self.nxt = self.isn
        self.rcv = 0
        self.peer_window = 0
        self.window = 20000
        self.unacked = b""
        self.clock = None  # of timestamps: what the other end has sent last
        self.began = time.monotonic()
        self.is_reset = self.is_ended = False
        self.received = bytearray()

    # --- segments out ---

    def own_clock(self):
        return int((time.monotonic() - self.began) * 1000) + 1000

    def options(self):
        return b"" if self.clock is None else segments.timestamps(self.own_clock(), self.clock)

    def tcp(self, flags=ACK, *, seq=None, ack=None, window=None, options=None, data=b"", **more):
        return segments.tcp(self.ends, (self.port, self.to), self.nxt if seq is None else seq, self.rcv if ack is None else ack,
                            flags, self.window if window is None else window, self.options() if options is None else options,
                            data, **more)

    def frame(self, frame):
        self.station.socket.send(frame)

    def send(self, flags=ACK, **named):
        self.frame(segments.packet(self.ends, self.tcp(flags, **named)))

    # --- a correct TCP ---

    def is_answered(self):
        """Whether a program listens."""
        self.send(SYN, ack=0, options=b"")
        try:
            return bool(self.queue.get(timeout=0.2).flags & SYN)
        except queue.Empty:
            return False

    def connect(self, mss=1460, scale=7, timestamps=True, sack=True, window=None, options=None):
        chosen = option(MSS, struct.pack("!H", mss)) if mss is not None else b""
        chosen += option(SACK_PERMITTED) if sack else b""
        chosen += segments.timestamps(self.own_clock(), 0) if timestamps else b""
        chosen += option(SCALE, bytes([scale])) + bytes([NOP]) if scale is not None else b""
        if window is not None:
            self.window = window
        chosen = segments.padded(chosen) if options is None else options
        self.send(SYN, ack=0, options=chosen, window=min(self.window, 0xFFFF))
        answer = self.next_of(SYN | ACK, lambda: self.send(SYN, ack=0, options=chosen))
        self.established(answer, timestamps)

    def established(self, answer, timestamps=True):
        """The other end has sent this SYN, and got ours."""
        self.una = self.nxt = self.isn + 1 & 0xFFFFFFFF
        self.rcv = answer.seq + 1 & 0xFFFFFFFF
        self.clock = segments.echoed_clock(answer.options) if timestamps else None
        self.send()

    def next_of(self, flags, again):
        """The next segment with these flags."""
        for _ in range(20):
            try:
                while True:
                    got = self.queue.get(timeout=AGAIN)
                    if got.flags & (SYN | ACK | RST | FIN) == flags:
                        return got
            except queue.Empty:
                again()
        raise Failure(f"no segment with flags {flags} has come")

    def called(self):
        """The SYN of a program that connects."""
        syn = self.next_of(SYN, lambda: None)
        self.rcv = syn.seq + 1 & 0xFFFFFFFF
        self.clock = segments.echoed_clock(syn.options)
        return syn

    def offer(self, flags=SYN | ACK, **named):
        """A SYN of this end."""
        options = option(MSS, struct.pack("!H", 1460)) + self.options() + option(SCALE, b"\7")
        self.send(flags, **{"options": segments.padded(options), **named})

    def established_by(self, flags):
        """The program's end has answered with these flags."""
        self.next_of(flags, lambda: None)
        self.una = self.nxt = self.isn + 1 & 0xFFFFFFFF
        self.send()

    def write(self, data):
        for at in range(0, len(data), 1400):
            part = data[at:at + 1400]
            self.send(ACK | PSH, data=part)
            self.unacked += part
            self.nxt = self.nxt + len(part) & 0xFFFFFFFF

    def exchange(self, data, seconds=3.0):
        """Whether the other end sends the same back."""
        start = len(self.received)
        self.write(data)
        self.pump(lambda: len(self.received) - start >= len(data), seconds)
        return bytes(self.received[start:]) == data

    def pump(self, is_done, seconds):
        """Receives, acknowledges, and sends again, until something has happened, or so long."""
        end = time.monotonic() + seconds
        while not is_done() and not self.is_reset and time.monotonic() < end:
            try:
                self.take(self.queue.get(timeout=min(AGAIN, max(end - time.monotonic(), 0))))
            except queue.Empty:
                if self.unacked:
                    self.send(ACK | PSH, seq=self.una, data=self.unacked[:1400])
        return is_done()

    def take(self, got):
        if got.flags & RST:
            self.is_reset = True
            return
        if self.clock is not None and (clock := segments.echoed_clock(got.options)) is not None:
            self.clock = clock
        self.peer_window = got.window
        acked = got.ack - self.una & 0xFFFFFFFF
        if 0 < acked <= len(self.unacked):
            self.una, self.unacked = got.ack, self.unacked[acked:]
        old = self.rcv - got.seq & 0xFFFFFFFF
        if old > 1 << 31:
            self.send()  # a gap
            return
        fresh = got.data[old:]
        self.received += fresh
        self.rcv = self.rcv + len(fresh) & 0xFFFFFFFF
        if got.flags & FIN and old <= len(got.data) and not self.is_ended:
            self.is_ended = True
            self.rcv = self.rcv + 1 & 0xFFFFFFFF
        if got.data or got.flags & FIN:
            self.acknowledge()

    def acknowledge(self):
        self.send()

    def finish(self):
        """Ends the connection as any program does. Whether the other end has done so, too."""
        if self.is_reset:
            return False
        self.pump(lambda: not self.unacked, 2)
        self.send(FIN | ACK)
        self.nxt = self.nxt + 1 & 0xFFFFFFFF
        for _ in range(8):
            if self.pump(lambda: self.is_ended, AGAIN) or self.is_reset:
                break
            self.send(FIN | ACK, seq=self.nxt - 1)
        return self.is_ended

    def leave(self):
        """Resets what is left of the connection."""
        self.send(RST | ACK, options=b"")
        del self.station.arrived[self.port]
