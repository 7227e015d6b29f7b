"""Hostile peers over the wire: a program learns from a connection that the stack has taken what it learns from the kernel's."""

import random
import struct
import time
from pathlib import Path

from hosts import segments
from hosts.against import Script, Stage, compare
from hosts.forms import icmp_error
from hosts.registry import MORE, case
from hosts.scripts import SCRIPTS
from hosts.segments import ACK, CWR, ECE, FIN, NOP, PSH, RST, SACK, SYN, URG, option
from testkit.failure import Failure

LOOPS = 0.5  # of a processor: no more than this for nothing
RANDOM_PEERS = 40
FORGED = 12  # segments of each


@case
def hostile_peers(hosts, seed):
    """`seed` changes nothing."""
    compare(hosts, [script for script in SCRIPTS if not script.slow])


@case
def frames_that_are_dropped_or_go_back_are_looked_at_once(hosts, seed):
    """A frame that the worker hands to the kernel comes back while its connection is taken."""
    stage = Stage(hosts, 4)
    hosts.server.start_stack()
    for name, send in STRANGE.items():
        raw = stage.raw()
        raw.connect()
        stage.warm_up(Script(send), raw, True)
        before = processor_seconds(hosts.server.worker())
        send(raw)
        time.sleep(0.3)  # for how long the worker may loop
        used = (processor_seconds(hosts.server.worker()) - before) / 0.3
        if used > LOOPS:
            raise Failure(f"{name}: the worker used {used:.1f} processors after one frame")
        raw.finish()
        raw.leave()
    hosts.server.stop_stack()


STRANGE = {
    "a wrong checksum": lambda raw: raw.send(ACK | PSH, data=b"wrong", wrong_sum=1),
    "a cut packet": lambda raw: raw.frame(segments.packet(raw.ends, raw.tcp(ACK | PSH, data=b"cut" * 9))[:60]),
    "IP options": lambda raw: raw.frame(segments.packet(raw.ends, raw.tcp(), options=bytes([1, 1, 1, 0]))),
    "a fragment": lambda raw: raw.frame(segments.fragments(raw.ends, raw.tcp(ACK | PSH, data=b"half" * 20), 64)[0]),
    "an ICMP error": lambda raw: icmp_error(raw, 3, 1),
}
for name, send in STRANGE.items():
    send.__name__ = name


def processor_seconds(pid):
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / 100


@case(part=MORE)
def hostile_peers_ipv6(hosts, seed):
    only_v4 = {"ip_options", "fragmented_segments", "icmp_errors", "a_path_that_is_narrow", "lengths_that_do_not_fit"}
    compare(hosts, [script for script in SCRIPTS if not script.slow and script.name not in only_v4], 6)


@case(part=MORE)
def random_peers(hosts, seed):
    """Segments with numbers near those that matter, one after the other; and what makes connections wait."""
    slow = [script for script in SCRIPTS if script.slow]
    compare(hosts, slow + [random_script(f"{seed}.{number}") for number in range(RANDOM_PEERS)])


def random_script(name):
    def run(raw):
        chosen = random.Random(name)
        for _ in range(FORGED):
            if raw.is_reset or raw.is_ended:
                return
            raw.send(**forged(raw, chosen))
            # The stack may give the connection back, and the kernel is to get segments in order.
            raw.pump(lambda: False, 0.03)
    run.__name__ = f"random_peer_{name}"
    return Script(run)


def forged(raw, chosen):
    def near(number, old=(-1, -7)):
        return number + chosen.choice((0, 0, 0, 1, 3, 100, 1 << 20, -(1 << 20), 1 << 30, *old))

    flags = chosen.choice((ACK, ACK, ACK | PSH, ACK | PSH, ACK | URG, RST, RST | ACK, SYN, SYN | ACK, 0, ACK | ECE, ACK | CWR))
    flags |= FIN if chosen.random() < 0.05 else 0
    block = struct.pack("!II", near(raw.rcv) & 0xFFFFFFFF, near(raw.rcv) & 0xFFFFFFFF)
    options = chosen.choice((None, None, None, b"", raw.options() + bytes([NOP, NOP]) + option(SACK, block),
                             raw.options() + segments.padded(option(253, b"?" * chosen.randrange(12)))))
    return {
        # After a give-back the kernel takes every old acknowledgement for one of long ago: docs/stack.md, "Limits".
        "flags": flags, "seq": near(raw.nxt), "ack": near(raw.rcv, ()), "window": chosen.choice((None, None, 1, 100, 65535)),
        "options": options, "data": chosen.randbytes(chosen.choice((0, 0, 0, 1, 5, 60))), "urgent": chosen.randrange(4),
    }
