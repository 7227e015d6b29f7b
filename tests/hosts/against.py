"""Runs what a peer does against a program twice: on the kernel alone, and on a connection that the stack has taken. The program
must learn the same: the same bytes, the same end, the same error."""

import base64
import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hosts.raw import Raw, Station
from testkit.failure import Failure
from testkit.wait import until

WITNESS = Path(__file__).with_name("witness.py")
PORT = 9100
FIRST_PORT = 20000
FIRST_SOURCE = 30000
WARM_UP = 64  # bytes of each exchange before the script
ROUNDS = 12  # exchanges on the kernel before the script
AT_ONCE = 8
AFTERWARDS = b"afterwards" * 30


class Script:
    """What a peer does with a connection, by a function.

    stays   the stack goes on with the connection: anybody could do this without knowing the connection
    slow    the connection stalls: that takes seconds
    answer  how the peer answers a program that connects; without it the peer connects
    connect arguments of Raw.connect
    """

    def __init__(self, function, stays=False, slow=False, answer=None, **connect):
        self.function, self.name = function, function.__name__
        self.stays, self.slow, self.answer, self.connect = stays, slow, answer, connect


class Stage:
    """Hosts with a program at the server, and a station at the client that plays its peers."""

    def __init__(self, hosts, family):
        self.hosts, self.family, self.server = hosts, family, hosts.server
        self.station = Station(hosts, hosts.client, hosts.server)
        self.next_port = FIRST_PORT
        self.next_source = FIRST_SOURCE
        self.witnesses = [hosts.server.program("witness", [
            sys.executable, WITNESS, "serve", hosts.server.addresses[family], PORT])]
        until(self.is_heard, "the witness to listen", 20, self.witnesses[0].must_run)

    def is_heard(self):
        raw = self.raw()
        try:
            return raw.is_answered()
        finally:
            raw.leave()

    def raw(self, to=PORT):
        self.next_port += 1
        return Raw(self.station, self.next_port, to, self.family)

    def told(self, port):
        """What a witness has told of the connection with this port of the peer's."""
        for witness in self.witnesses:
            for line in witness.lines():
                if line.startswith("{") and (said := json.loads(line))["port"] == port:
                    return said
        return None

    def is_carried(self, raw):
        for one in self.server.status()["connections"]:
            if one["remote"].endswith(f":{raw.port}"):
                return all(way["carrier"] == "stack" for way in one["directions"])
        return False

    def run_all(self, scripts, by_stack):
        """What came of each."""
        raws = {script.name: self.raw() for script in scripts if not script.answer}
        raws |= self.dialled([script for script in scripts if script.answer])
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda script: self.run(script, raws[script.name], by_stack), scripts))

    def dialled(self, scripts):
        """A program connects to each."""
        first = self.next_source
        self.next_source += len(scripts)
        raws = {script.name: self.raw(first + number) for number, script in enumerate(scripts)}
        if raws:
            ports = [raw.port for raw in raws.values()]
            address = self.station.ends(self.family).source
            words = [sys.executable, WITNESS, "dial", address, ports[0], first, len(ports)]
            self.witnesses.append(self.server.program("witness", words))
        return raws

    def run(self, script, raw, by_stack):
        try:
            return self.outcome(script, raw, by_stack)
        except Failure as failure:
            return {"failed": str(failure), "goes on": False}

    def outcome(self, script, raw, by_stack):
        if script.answer:
            script.answer(raw)
        else:
            raw.connect(**script.connect)
        before = self.warm_up(script, raw, by_stack)
        saw = script.function(raw)
        if by_stack and script.stays and not self.is_carried(raw):
            raise Failure("the stack has given the connection back")
        goes_on = not raw.is_reset and raw.exchange(AFTERWARDS)
        ended = raw.finish()
        said = self.end_of(raw)
        raw.leave()
        got = base64.b64decode(said["got"])[before:]
        return {"saw": saw, "goes on": goes_on, "reset": raw.is_reset, "ended": ended, "got": got, "end": said["end"]}

    def warm_up(self, script, raw, by_stack):
        """The connection is in use, and carried by whom it is to be. Returns the number of bytes that have been exchanged."""
        chosen = random.Random(script.name)
        done = 0
        end = time.monotonic() + 20
        while not done or (by_stack and not self.is_carried(raw)):
            if time.monotonic() > end:
                raise Failure("the stack has not taken the connection")
            done += self.exchanges(raw, chosen)
        # The first segment by the stack must be a right one.
        done += self.exchanges(raw, chosen) if by_stack else 0
        return done * WARM_UP

    def exchanges(self, raw, chosen):
        for _ in range(ROUNDS):
            if not raw.exchange(chosen.randbytes(WARM_UP)):
                raise Failure("the program has not answered before the script began")
        return ROUNDS

    def end_of(self, raw):
        try:
            return until(lambda: self.told(raw.port), "the end of a connection", 2)
        except Failure:
            return {"got": "", "end": "open"}


def difference(kernel, stack):
    keys = sorted(key for key in {*kernel, *stack} if kernel.get(key) != stack.get(key))
    return "; ".join(f"{key}: kernel {shown(kernel.get(key))}, stack {shown(stack.get(key))}" for key in keys)


def shown(value):
    return f"{len(value)} bytes, {value[:60]!r}" if isinstance(value, bytes) else repr(value)


def compare(hosts, scripts, family=4):
    """Each script must have the same outcome on the kernel and by the stack, which must have taken its connection. One that has another
    outcome once is shown, and runs again: a segment that reaches a parked socket is lost, and these peers send none again."""
    stage = Stage(hosts, family)
    by_kernel = {script.name: outcome for script, outcome in zip(scripts, stage.run_all(scripts, False))}
    hosts.server.start_stack()
    wrong = wrong_ones(stage, scripts, by_kernel)
    for said in wrong.values():
        print(f"unsteady: {said}", flush=True)
    wrong = wrong_ones(stage, [script for script in scripts if script.name in wrong], by_kernel)
    if wrong:
        raise Failure("\n  ".join([f"{len(wrong)} of {len(scripts)} differ:", *wrong.values()]))
    taken, returned = hosts.server.stop_stack()
    if taken < len(scripts) or taken != returned:
        raise Failure(f"of {len(scripts)} connections the stack has taken {taken}, and given back {returned}")


def wrong_ones(stage, scripts, by_kernel):
    """What the stack does otherwise than the kernel, by the script's name."""
    wrong = {}
    for script, stack in zip(scripts, stage.run_all(scripts, True)):
        if (kernel := by_kernel[script.name]) != stack:
            wrong[script.name] = f"{script.name}: {difference(kernel, stack)}"
        elif "failed" in stack:
            wrong[script.name] = f"{script.name}: {stack['failed']}"
    return wrong
