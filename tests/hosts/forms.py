"""What a hostile peer does by the form of its segments and packets, and by handshakes. against.py runs it."""

import struct

from hosts import segments
from hosts.against import Script
from hosts.scripts import BAD, SCRIPTS, script
from hosts.segments import ACK, CWR, ECE, END, FIN, ICMP, NOP, PSH, RST, SACK, SYN, TIMESTAMPS, URG

# --- segments and options ---

@script(mss=100)
def segments_of_a_hundred_bytes(raw):
    return [raw.exchange(b"n" * 1400) for _ in range(5)]


@script(mss=65535)
def segments_of_65535_bytes(raw):
    return [raw.exchange(b"o" * 1400) for _ in range(5)]


@script(timestamps=False)
def timestamps_that_were_not_agreed(raw):
    raw.send(ACK | PSH, data=b"un", options=segments.timestamps(5, 5))
    raw.unacked, raw.nxt = b"un", raw.nxt + 2
    return raw.pump(lambda: raw.received.endswith(b"un"), 2)


@script()
def no_timestamps_although_agreed(raw):
    raw.send(ACK | PSH, data=b"no", options=b"")
    raw.unacked, raw.nxt = b"no", raw.nxt + 2
    return raw.pump(lambda: raw.received.endswith(b"no"), 2)


@script()
def timestamps_of_the_past(raw):
    raw.send(ACK | PSH, data=BAD, options=segments.timestamps(raw.own_clock() - 900, raw.clock))


@script(slow=True)
def timestamps_of_the_future(raw):
    """The kernel then takes what follows for old."""
    raw.send(options=segments.timestamps(raw.own_clock() + (1 << 30), raw.clock))


@script()
def options_of_every_length(raw):
    for length in range(0, 44, 4):
        for filling in (NOP, END):
            raw.send(options=bytes([filling]) * length)
    for length in range(0, 38):
        kind = bytes([253, length]) + b"o" * (max(length, 2) - 2)
        raw.send(options=segments.padded(kind))


@script()
def options_that_are_cut(raw):
    for cut in ([TIMESTAMPS], [TIMESTAMPS, 10], [TIMESTAMPS, 0], [NOP, NOP, NOP, TIMESTAMPS], [SACK, 3, 1], [253, 40], [19, 18]):
        raw.send(ACK | PSH, options=(bytes([NOP] * 4) + bytes(cut))[-4:], data=BAD)
    for length in (2, 3, 9, 11, 12, 40):
        raw.send(ACK | PSH, options=segments.padded(bytes([TIMESTAMPS, length]) + b"\1" * (min(length, 40) - 2)), data=BAD)


@script(stays=True)
def headers_of_every_length(raw):
    for offset in range(16):
        raw.send(ACK | PSH, seq=raw.nxt - 70, data=b"h" * 40, offset=offset)


@script()
def urgent_bytes(raw):
    raw.send(ACK | URG | PSH, data=b"urgent!", urgent=3)
    raw.unacked, raw.nxt = b"urgent!", raw.nxt + 7
    raw.pump(lambda: not raw.unacked, 2)


@script()
def flags_that_do_not_belong_together(raw):
    for flags in (0, PSH, FIN, FIN | PSH | URG, SYN | FIN, SYN | RST, URG, ECE | CWR):
        raw.send(flags, seq=raw.nxt - 500, data=b"f")
        raw.send(flags & ~(RST | SYN), seq=raw.nxt + (4 << 20))
    raw.send(0, data=BAD)


@script()
def reserved_bits_and_marks_of_congestion(raw):
    for reserved in (2, 4, 8, 14):
        raw.send(reserved=reserved)
    for flags in (ECE, CWR, ECE | CWR):
        raw.send(ACK | flags)
    raw.frame(segments.packet(raw.ends, raw.tcp(), congestion=3))


@script()
def an_end_behind_a_gap(raw):
    raw.send(FIN | ACK, seq=raw.nxt + 5)


@script()
def bytes_behind_the_end(raw):
    """One batch of frames for the device."""
    raw.send(FIN | ACK)
    raw.send(ACK | PSH, data=BAD)
    raw.nxt += 1
    raw.pump(lambda: raw.is_ended, 2)


for scale in range(15):
    def function(raw):
        return [raw.exchange(b"z" * 1400) for _ in range(5)]
    function.__name__ = f"a_window_scale_of_{scale}"
    SCRIPTS.append(Script(function, scale=scale, sack=scale % 2 == 0))


# --- packets ---

@script(stays=True)
def wrong_checksums(raw):
    for wrong in (1, 0xFFFF, 0x8000):
        raw.send(ACK | PSH, data=BAD, wrong_sum=wrong)


@script(stays=True)
def lengths_that_do_not_fit(raw):
    whole = raw.tcp(ACK | PSH, data=BAD)
    for length in (0, 19, 20, 30, 1000, 65535):
        raw.frame(segments.packet(raw.ends, whole, length=length))
    for length in range(14, 60, 5):
        raw.frame(segments.packet(raw.ends, whole)[:length])


@script()
def padding(raw):
    raw.frame(segments.packet(raw.ends, raw.tcp(ACK | PSH, data=b"p")) + b"padding" * 3)
    raw.unacked, raw.nxt = b"p", raw.nxt + 1
    return raw.pump(lambda: raw.received.endswith(b"p"), 2)


@script(stays=True)
def another_link_address(raw):
    frame = segments.packet(raw.ends, raw.tcp(ACK | PSH, data=BAD))
    for address in ("020000000099", "01005e000001", "ffffffffffff"):
        raw.frame(bytes.fromhex(address) + frame[6:])


def new_bytes(raw, frames, data):
    for frame in frames:
        raw.frame(frame)
    raw.unacked, raw.nxt = data, raw.nxt + len(data)
    return raw.pump(lambda: raw.received.endswith(data), 2)


@script()
def ip_options(raw):
    data = b"behind options"
    return new_bytes(raw, [segments.packet(raw.ends, raw.tcp(ACK | PSH, data=data), options=bytes([1, 1, 1, 0]))], data)


@script()
def fragmented_segments(raw):
    data = b"in two pieces" * 10
    return new_bytes(raw, segments.fragments(raw.ends, raw.tcp(ACK | PSH, data=data), 64), data)


@script()
def tags_of_priority(raw):
    data = b"with a tag"
    frame = segments.packet(raw.ends, raw.tcp(ACK | PSH, data=data))
    return new_bytes(raw, [frame[:12] + bytes([0x81, 0, 0xE0, 0]) + frame[12:]], data)


def icmp_error(raw, kind, code, rest=b"\0" * 4, seq=None):
    """About a segment that the program's host has sent."""
    sent = segments.tcp(raw.ends, (raw.to, raw.port), raw.rcv if seq is None else seq, raw.nxt, ACK, 500)
    quoted = segments.packet(raw.ends._replace(source=raw.ends.target, target=raw.ends.source), sent)[14:42]
    body = bytes([kind, code, 0, 0]) + rest + quoted
    body = body[:2] + struct.pack("!H", segments.checksum(body)) + body[4:]
    raw.frame(segments.packet(raw.ends, body, ICMP))


@script()
def icmp_errors(raw):
    for kind, code in ((3, 1), (3, 2), (3, 3), (3, 9), (4, 0), (11, 0), (12, 0)):
        icmp_error(raw, kind, code)
        icmp_error(raw, kind, code, seq=raw.rcv + (1 << 30))


@script()
def a_path_that_is_narrow(raw):
    icmp_error(raw, 3, 4, struct.pack("!HH", 0, 700), seq=raw.rcv - 64)
    return [raw.exchange(b"v" * 1400) for _ in range(3)]


# --- handshakes of a program that connects ---

def with_an_answer(raw):
    """As usual."""
    raw.called()
    raw.offer(seq=raw.isn)
    raw.established_by(ACK)


def at_the_same_time(raw):
    """Both ends connect (RFC 9293, figure 8)."""
    raw.called()
    raw.offer(SYN, seq=raw.isn, ack=0)
    raw.established_by(SYN | ACK)
    raw.offer(SYN | ACK, seq=raw.isn)


def in_three_parts(raw):
    """The split handshake: an acknowledgement, then a SYN, which the program's end answers."""
    raw.called()
    raw.send(seq=raw.isn - 1)
    raw.offer(SYN, seq=raw.isn, ack=0)
    raw.established_by(SYN | ACK)


def with_bytes(raw):
    """In the SYN, before anything is acknowledged."""
    raw.called()
    raw.offer(seq=raw.isn, data=b"early")
    raw.established_by(ACK)


def after_wrong_answers(raw):
    raw.called()
    raw.offer(seq=raw.isn, ack=raw.rcv + 1)
    raw.offer(RST, seq=raw.isn, ack=0)
    raw.offer(RST | ACK, seq=raw.isn, ack=raw.rcv + 7)
    raw.offer(FIN | ACK, seq=raw.isn)
    raw.offer(seq=raw.isn)
    raw.established_by(ACK)


def without_options(raw):
    raw.called()
    raw.offer(seq=raw.isn, options=b"")
    raw.clock = None
    raw.established_by(ACK)


def nothing_more(raw):
    return raw.exchange(b"as usual" * 100)


for answer in (with_an_answer, at_the_same_time, in_three_parts, with_bytes, after_wrong_answers, without_options):
    def function(raw):
        return nothing_more(raw)
    function.__name__ = f"a_handshake_{answer.__name__}"
    SCRIPTS.append(Script(function, answer=answer))
