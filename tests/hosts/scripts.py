"""What a hostile peer, or somebody who forges its segments, does to a stream. against.py runs it, and what forms.py adds."""

import struct
import time

from hosts.against import Script
from hosts.segments import ACK, NOP, PSH, RST, SACK, SYN, option

SCRIPTS = []
BAD = b"forged" * 20


def script(**how):
    """See Script."""
    def add(function):
        SCRIPTS.append(Script(function, **how))
        return function
    return add


# --- sequence numbers ---

@script(stays=True)
def data_outside_of_the_window(raw):
    for distance in (1 << 30, -(1 << 30), 1 << 31, 8 << 20):
        raw.send(ACK | PSH, seq=raw.nxt + distance, data=BAD)


@script(stays=True)
def data_that_came_before_with_other_bytes(raw):
    for length in (1, 30, 64):
        raw.send(ACK | PSH, seq=raw.nxt - length, data=BAD[:length])


@script()
def other_bytes_before_new_ones(raw):
    raw.send(ACK | PSH, seq=raw.nxt - 20, data=b"x" * 20 + b"new bytes")
    raw.unacked, raw.nxt = b"new bytes", raw.nxt + 9
    return raw.pump(lambda: raw.received.endswith(b"new bytes"), 2)


@script()
def bytes_behind_a_gap_that_others_fill(raw):
    raw.send(ACK | PSH, seq=raw.nxt + 10, data=BAD[:20])
    raw.pump(lambda: False, 0.05)
    return raw.exchange(b"the right bytes over all of it" * 3)


@script()
def bytes_behind_a_gap_that_stay(raw):
    raw.send(ACK | PSH, seq=raw.nxt + 30, data=b"z" * 30)
    raw.pump(lambda: False, 0.05)
    return raw.exchange(b"a" * 30 + b"z" * 30)


@script(window=200, scale=0)
def data_beyond_the_promised_window(raw):
    room = raw.peer_window << 7
    raw.send(ACK | PSH, seq=raw.nxt + room + 100, data=BAD)
    raw.send(ACK | PSH, seq=raw.nxt + room, data=BAD)


@script(stays=True)
def probes_of_a_window(raw):
    """As of keepalive: a byte that has come, and none."""
    raw.send(seq=raw.nxt - 1)
    raw.send(seq=raw.nxt - 1, data=b"?")


# --- resets and SYNs ---

@script()
def a_reset_that_is_exact(raw):
    raw.send(RST, seq=raw.nxt, options=b"")
    time.sleep(0.1)  # for how long the program may go on, if it does


@script()
def a_reset_with_an_ack(raw):
    raw.send(RST | ACK)
    time.sleep(0.1)  # for how long the program may go on, if it does


@script()
def resets_that_are_not_exact(raw):
    for distance in (1, 100, 1000, -1):
        raw.send(RST, seq=raw.nxt + distance, options=b"")


@script(stays=True)
def resets_outside_of_the_window(raw):
    for distance in (-1, 1 << 30, -(1 << 30)):
        raw.send(RST, seq=raw.nxt + distance, options=b"")
        raw.send(RST | ACK, seq=raw.nxt + distance)


@script()
def data_behind_a_reset(raw):
    """One batch of frames for the device: the reset comes first."""
    raw.send(RST, seq=raw.nxt, options=b"")
    raw.send(ACK | PSH, data=BAD)
    time.sleep(0.1)  # for how long the program may go on, if it does


@script()
def syns_in_the_window(raw):
    for distance in (0, 1, 500):
        raw.send(SYN, seq=raw.nxt + distance, options=b"")
        raw.send(SYN | ACK, seq=raw.nxt + distance, options=b"")


@script(stays=True)
def syns_outside_of_the_window(raw):
    for distance in (-1, 1 << 30, -(1 << 30)):
        raw.send(SYN, seq=raw.nxt + distance, options=b"")
        raw.send(SYN | ACK, seq=raw.nxt + distance)


# --- acknowledgements ---

@script(stays=True)
def an_ack_of_what_was_never_sent(raw):
    for distance in (1, 1000, 1 << 30):
        raw.send(ack=raw.rcv + distance)
        raw.send(ACK | PSH, ack=raw.rcv + distance, data=BAD)


@script(stays=True)
def an_ack_of_long_ago(raw):
    for distance in (1, 100, 1 << 30):
        raw.send(ack=raw.rcv - distance)
    raw.send(ACK | PSH, ack=raw.rcv - (1 << 30), data=BAD)


@script()
def old_acks_with_new_bytes(raw):
    raw.send(ACK | PSH, ack=raw.rcv - 50, data=b"counts")
    raw.unacked, raw.nxt = b"counts", raw.nxt + 6
    return raw.pump(lambda: raw.received.endswith(b"counts"), 2)


@script()
def acks_in_the_middle_of_segments(raw):
    def divided():
        for part in range(1, 6):
            raw.send(ack=raw.rcv - 1000 + 200 * part)
    raw.acknowledge = divided
    return [raw.exchange(b"q" * 1000) for _ in range(5)]


@script()
def nothing_is_acknowledged_for_a_while(raw):
    raw.acknowledge = lambda: None
    raw.send(ACK | PSH, data=b"m" * 500)
    raw.unacked, raw.nxt = b"m" * 500, raw.nxt + 500
    raw.pump(lambda: False, 0.7)
    del raw.acknowledge
    raw.send()
    return bytes(raw.received[-500:]) == b"m" * 500


@script()
def duplicate_acks(raw):
    raw.acknowledge = lambda: [raw.send(ack=raw.una_of_reader) for _ in range(6)]
    raw.una_of_reader = raw.rcv
    raw.write(b"d" * 300)
    raw.pump(lambda: False, 0.1)
    del raw.acknowledge
    raw.send()
    return raw.pump(lambda: not raw.unacked, 2)


@script()
def sack_blocks_that_are_absurd(raw):
    for left, right in ((0, 10), (10, 0), (0, 1 << 31), (1 << 30, 1 << 31), (-500, -100), (0, 0)):
        block = struct.pack("!II", raw.rcv + left & 0xFFFFFFFF, raw.rcv + right & 0xFFFFFFFF)
        raw.send(options=bytes([NOP, NOP]) + option(SACK, block) + raw.options())


# --- windows ---

@script()
def a_window_of_zero_and_then_one_that_opens(raw):
    usual, raw.window = raw.window, 0
    raw.write(b"w" * 2000)
    raw.pump(lambda: False, 0.4)
    raw.window = usual
    raw.send()
    return raw.pump(lambda: raw.received.endswith(b"w" * 2000), 4)


@script(window=60000, scale=0)
def a_window_that_shrinks(raw):
    for raw.window in (30000, 5000, 1000, 100, 1, 300, 60000):
        raw.send()
        raw.write(b"s" * 200)
        raw.pump(lambda: False, 0.02)
    return raw.pump(lambda: not raw.unacked and raw.received.endswith(b"s" * 1400), 4)


@script(window=65535, scale=14)
def the_largest_window(raw):
    return [raw.exchange(b"l" * 1400 * 8) for _ in range(5)]


@script(window=65535, scale=15)
def a_scale_beyond_the_largest(raw):
    return [raw.exchange(b"b" * 1400) for _ in range(5)]


@script(window=60000, scale=0)
def a_window_of_ten_bytes(raw):
    usual, raw.window = 60000, 10
    answered = raw.exchange(b"t" * 30, 6)
    raw.window = usual
    return answered
