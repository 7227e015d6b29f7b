"""What the stack does to its host besides carrying connections: nothing."""

import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from statistics import median

from hosts.cases import LIVELY, exchanged, must_have_taken
from hosts.registry import MORE, case
from hosts.world import PORT
from testkit.commands import run
from testkit.failure import Failure
from testkit.wait import until

PLAIN = Path(__file__).with_name("plain.py")
TIMES = 4  # that each turn measures
# Of the speed without stacks. A program on the device's way costs a quarter of the bulk if the kernel has to copy each frame for it. What
# wakes programs up takes most of a request's time, which is never twice the same on a busy machine.
LEAST = {"byte": 0.93, "request": 0.8}
TURNS = 4, 24  # at least, and at most


def devices(host):
    """Those of the host's namespace: by name, whether it has an XDP program."""
    links = json.loads(run("ip", "-n", host.namespace.name, "-json", "link", "show"))
    return {link["ifname"]: "xdp" in link for link in links}


def inlets(host):
    return [name for name in devices(host) if name.startswith("sidestep")]


@case
def other_connections_pass_no_xdp_program(hosts, seed):
    """The frames of what is carried are diverted to another device, which has the program."""
    hosts.server.start_stack()
    found = devices(hosts.server)
    if found.get(hosts.server.device) is not False or [found[name] for name in inlets(hosts.server)] != [True]:
        raise Failure(f"devices of {hosts.server.name}, and whether they have an XDP program: {found}")
    exchanged(hosts, "--connections", "4", "--rounds", "1500", "--seed", seed)
    must_have_taken(hosts.server, 4)
    until(lambda: not inlets(hosts.server), "the stack's own device to go with it", 10)


@case
def the_stacks_own_device_is_set_down(hosts, seed):
    """The kernel gets everything back. Once the device is up, new connections are taken."""
    hosts.server.start_stack()

    def set_down_and_up():
        time.sleep(1)  # for how long it carries
        [inlet] = inlets(hosts.server)
        hosts.server.namespace.ip(f"link set {inlet} down")
        until(lambda: "was set down or removed" in hosts.server.stack.output(), "the stack to notice", 10)
        time.sleep(0.5)  # for how long the kernel carries
        hosts.server.namespace.ip(f"link set {inlet} up")

    exchanged(hosts, *LIVELY, "12", "--seed", seed, meanwhile=set_down_and_up)
    must_have_taken(hosts.server, 8)


@case
def nothing_is_left_of_a_stack_that_was_killed(hosts, seed):
    """All of its processes at once; `seed` changes nothing."""
    hosts.server.start_stack()
    stack = hosts.server.stack
    for pid in [*hosts.server.stack_children(), stack.pid]:
        os.kill(pid, signal.SIGKILL)
    stack.popen.wait(10)
    hosts.server.stack = None
    until(lambda: not inlets(hosts.server), "the stack's own device to go with it", 10)
    hosts.server.start_stack()
    exchanged(hosts, "--connections", "4", "--rounds", "1500", "--seed", seed)
    must_have_taken(hosts.server, 4)


def measured(hosts):
    """Processor time by byte and by request, of programs without Sidestep."""
    client = hosts.client.process("client", [sys.executable, PLAIN, "run", hosts.server.addresses[4], PORT, TIMES])
    client.wait(60)
    return json.loads(client.output())


def measured_with_stacks(hosts):
    for host in (hosts.client, hosts.server):
        host.start_stack()
    found = measured(hosts)
    for host in (hosts.client, hosts.server):
        must_have_taken(host, 0)
    return found


@case(part=MORE)
def other_connections_lose_nothing(hosts, seed):
    """With stacks and without, in turns. A busy machine gets more turns; `seed` changes nothing."""
    words = [sys.executable, PLAIN, "serve", hosts.server.addresses[4], PORT]
    hosts.server.process("server", words).wait_output(re.compile("ready"))
    ways = (measured, measured_with_stacks)
    found = {way: {"byte": [], "request": []} for way in ways}
    least, most = TURNS
    for turn in range(most):
        for way in ways if turn % 2 else ways[::-1]:
            for what, values in way(hosts).items():
                found[way][what] += values
        ratios = {what: median(found[measured][what]) / median(found[measured_with_stacks][what]) for what in found[measured]}
        slower = [what for what, ratio in ratios.items() if ratio < LEAST[what]]
        if turn + 1 >= least and not slower:
            break
    said = ", ".join(f"{what} {ratio:.3f}" for what, ratio in ratios.items())
    print(f"figure: other connections, with stacks: {said} of the speed without, after {turn + 1} turns", flush=True)
    if slower:
        raise Failure(f"other connections are slower with stacks: {said}")
