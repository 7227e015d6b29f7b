"""Frames of TCP segments, made and read by hand."""

import ipaddress
import struct
from collections import namedtuple

FIN, SYN, RST, PSH, ACK, URG, ECE, CWR = (1 << bit for bit in range(8))
TCP, ICMP, ICMPV6 = 6, 1, 58
HOPS = 64
END, NOP, MSS, SCALE, SACK_PERMITTED, SACK, TIMESTAMPS = 0, 1, 2, 3, 4, 5, 8

Ends = namedtuple("Ends", "source target source_mac target_mac")
Segment = namedtuple("Segment", "source_port target_port seq ack flags window options data")


def option(kind, value=b""):
    return bytes([kind, len(value) + 2]) + value


def timestamps(value, echo):
    return bytes([NOP, NOP]) + option(TIMESTAMPS, struct.pack("!II", value & 0xFFFFFFFF, echo & 0xFFFFFFFF))


def padded(options):
    """To a multiple of four bytes."""
    return options + bytes([END]) * (-len(options) % 4)


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def pseudo(ends, protocol, length):
    if ends.source.version == 4:
        return ends.source.packed + ends.target.packed + struct.pack("!BBH", 0, protocol, length)
    return ends.source.packed + ends.target.packed + struct.pack("!IHBB", length, 0, 0, protocol)


def tcp(ends, ports, seq, ack, flags, window, options=b"", data=b"", *, offset=None, urgent=0, wrong_sum=0, reserved=0):
    """A TCP header and what it carries. `offset`: what the header says of its own length, in words."""
    offset = 5 + len(options) // 4 if offset is None else offset
    head = struct.pack("!HHIIBBHHH", *ports, seq & 0xFFFFFFFF, ack & 0xFFFFFFFF, offset << 4 | reserved, flags, window, 0, urgent)
    whole = head + options + data
    total = checksum(pseudo(ends, TCP, len(whole)) + whole) ^ wrong_sum
    return whole[:16] + struct.pack("!H", total) + whole[18:]


def packet(ends, payload, protocol=TCP, *, options=b"", fragment=0, length=None, number=0, congestion=0):
    """An IP packet in an Ethernet frame. `options`, `fragment`: of IPv4. `length`: what the header says."""
    if ends.source.version == 4:
        length = 20 + len(options) + len(payload) if length is None else length
        head = struct.pack("!BBHHHBBH", 0x45 + len(options) // 4, congestion, length, number, fragment, HOPS, protocol, 0)
        head += ends.source.packed + ends.target.packed + options
        head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    else:
        length = len(payload) if length is None else length
        head = struct.pack("!IHBB", 6 << 28 | congestion << 20, length, protocol, HOPS) + ends.source.packed + ends.target.packed
    kind = b"\x08\x00" if ends.source.version == 4 else b"\x86\xdd"
    return ends.target_mac + ends.source_mac + kind + head + payload


def fragments(ends, payload, first):
    """The packet in two pieces; `first`: bytes of the first one, a multiple of eight."""
    more = 0x2000
    return [packet(ends, payload[:first], fragment=more, number=7), packet(ends, payload[first:], fragment=first // 8, number=7)]


def read(frame):
    """The segment, and the addresses that it comes from and goes to. None: it is none."""
    kind, ip = frame[12:14], frame[14:]
    if kind == b"\x08\x00" and ip[9] == TCP:
        addresses, body = (ip[12:16], ip[16:20]), ip[(ip[0] & 15) * 4:struct.unpack("!H", ip[2:4])[0]]
    elif kind == b"\x86\xdd" and ip[6] == TCP:
        addresses, body = (ip[8:24], ip[24:40]), ip[40:40 + struct.unpack("!H", ip[4:6])[0]]
    else:
        return None
    source, target, seq, ack, offset, flags, window = struct.unpack("!HHIIBBH", body[:16])
    head = (offset >> 4) * 4
    segment = Segment(source, target, seq, ack, flags, window, body[20:head], body[head:])
    return segment, *map(ipaddress.ip_address, addresses)


def echoed_clock(options):
    """The sender's timestamp, or None."""
    while options:
        if options[0] in (END, NOP):
            options = options[1:] if options[0] == NOP else b""
        elif options[0] == TIMESTAMPS:
            return struct.unpack("!I", options[2:6])[0]
        else:
            options = options[max(options[1], 2):]
    return None
