"""What connections between two hosts must survive. Every byte is compared, and each case says how many connections the stacks must
have taken."""

import random
import signal
import time

from hosts.deeds import change_link_address, cut_cable, kill_keeper, kill_keeper_and_worker, kill_worker, replace_worker
from hosts.registry import SLOW, case
from hosts.world import PORT, Pod
from testkit.commands import run
from testkit.failure import Failure
from testkit.namespaces import link
from testkit.wait import until


def exchanged(hosts, *options, **named):
    if hosts.exchange(*options, **named) == 0:
        raise Failure("not a byte came back")


def must_have_taken(host, least):
    reasons = host.status()["reasons"]
    taken, returned = host.stop_stack()
    if taken < least or not least and taken:
        raise Failure(f"the stack of {host.name} has taken {taken} connections; it must take {least}. Counted so far: {reasons}")
    if returned != taken:
        raise Failure(f"the stack of {host.name} has taken {taken} connections and given back {returned}")


def taken_by_now(host):
    """How many connections the host's stacks have taken since the broker began."""
    return host.status()["stack"]["upgraded"]


def second_cable(hosts):
    """Between 10.9.9.1 at the client and 10.9.9.2 at the server, by devices of the name `second`."""
    for host in (hosts.client, hosts.server):
        host.second = f"{host.name}9"
    link(hosts.client.namespace, hosts.client.second, hosts.server.namespace, hosts.server.second)
    for host, number in ((hosts.client, 1), (hosts.server, 2)):
        host.namespace.ip(f"address add 10.9.9.{number}/24 dev {host.second}")


def must_have_counted(host, reason):
    """`sidestep status` shows the reason, also of stacks that have ended."""
    counted = host.status()["reasons"]
    if not counted.get(reason):
        raise Failure(f"{host.name} has not counted {reason}: {counted}")


@case
def kernel_at_both_ends(hosts, seed):
    exchanged(hosts, "--connections", "8", "--rounds", "100", "--seed", seed)


@case
def stack_at_both_ends(hosts, seed):
    both(hosts, lambda: exchanged(hosts, "--connections", "16", "--rounds", "1500", "--seed", seed), 12)


@case
def status_tells_of_the_stack(hosts, seed):
    hosts.server.start_stack()

    def look():
        def carried():
            connections = hosts.server.status()["connections"]
            return [one for one in connections if all(way["carrier"] == "stack" for way in one["directions"])]
        until(carried, "connections by stack in `sidestep status`", 10)

    exchanged(hosts, "--connections", "4", "--rounds", "1500", "--pause", "1", "--seed", seed, meanwhile=look)
    processes = [one for one in hosts.server.status()["processes"] if one["exe"].endswith("/sidestep-stack")]
    if len(processes) != 1 or processes[0]["upgraded"] < 4 or processes[0]["ring_tx"] == 0 or not processes[0]["reasons"]:
        raise Failure(f"`sidestep status` does not tell of the stack's work: {processes}")
    must_have_counted(hosts.server, "irregular")  # the end of each connection
    must_have_taken(hosts.server, 4)


@case
def other_devices_stay_with_the_kernel(hosts, seed):
    """The stack was given a device by which no packet leaves."""
    hosts.server.namespace.ip("link add other0 type veth peer name other1")
    hosts.server.namespace.ip("link set other0 up")
    hosts.server.start_stack(device="other0")
    exchanged(hosts, "--connections", "4", "--rounds", "1500", "--seed", seed)
    must_have_counted(hosts.server, "other-device")
    must_have_taken(hosts.server, 0)


@case
def peers_and_ports_that_are_left_out(hosts, seed):
    """The stack carries what the operator has chosen, and nothing else; on one processor."""
    peer, stranger = f"{hosts.client.addresses[4]}/31", "192.0.2.0/24"
    for options, taken in (("--peers", stranger), 0), (("--ports", "1-1024"), 0), (("--peers", peer, "--ports", PORT), 1):
        hosts.server.start_stack(*map(str, options), "--cpu", "0")
        exchanged(hosts, "--connections", "16", "--rounds", "1500", "--seed", seed)
        if not taken:
            must_have_counted(hosts.server, "not-chosen")
        must_have_taken(hosts.server, taken)


@case
def two_devices(hosts, seed):
    """One connection by each cable."""
    second_cable(hosts)
    hosts.server.start_stack("--device", hosts.server.second)
    for dialled in (hosts.server.addresses[4], "10.9.9.2"):
        exchanged(hosts, "--connections", "4", "--rounds", "1500", "--seed", seed, dialled=dialled, bound="0.0.0.0")
    must_have_taken(hosts.server, 7)


# Of linux/in.h and asm-generic/socket.h.
MINIMUM_TTL = "--option", "0.21=1"
MARK, PACING = ("--option", "1.36=7"), ("--option", "1.47=1000000000")


@case
def options_that_only_the_kernel_serves(hosts, seed):
    """IP_MINTTL: the kernel drops packets that have passed a router. SO_MARK: rules may choose another way. SO_MAX_PACING_RATE."""
    hosts.server.start_stack()
    counted = [0]
    for option in (MINIMUM_TTL, MARK, PACING):
        exchanged(hosts, "--connections", "4", "--rounds", "1500", "--seed", seed, serve=option)
        counted.append(hosts.server.status()["reasons"].get("kernel-only", 0))
        if counted[-1] == counted[-2]:
            raise Failure(f"{option}: kernel-only was not counted")
    must_have_taken(hosts.server, 0)


@case
def lost_segments(hosts, seed):
    """The kernel mends what the client's host loses."""
    rules = "add table inet lossy; add chain inet lossy out { type filter hook output priority 0; }; " \
            f"add rule inet lossy out ip daddr {hosts.server.addresses[4]} tcp dport 9000 numgen random mod 200 < 1 drop"
    hosts.server.start_stack()
    run(*hosts.client.around(["nft", rules]))
    exchanged(hosts, "--connections", "8", "--rounds", "1500", "--seed", seed)
    must_have_counted(hosts.server, "loss")
    must_have_taken(hosts.server, 6)


@case
def bulk_goes_back_to_the_kernel(hosts, seed):
    hosts.server.start_stack()
    exchanged(hosts, "--connections", "2", "--rounds", "1500", "--seed", seed, "--bulk", "300")
    must_have_counted(hosts.server, "bulk")
    must_have_taken(hosts.server, 2)


@case
def a_peer_that_does_not_read(hosts, seed):
    """Its window closes in the end."""
    hosts.server.start_stack("--longest-message", "1000000")
    exchanged(hosts, "--connections", "2", "--rounds", "1500", "--seed", seed, "--burst", "400000")
    must_have_counted(hosts.server, "window")
    must_have_taken(hosts.server, 2)


@case
def a_program_that_is_stopped(hosts, seed):
    """It does not enter its rings while its packets wait for that: they go to the kernel."""
    hosts.server.start_stack()

    def stop_and_go():
        def is_counted():
            for _ in range(20):
                hosts.serving.popen.send_signal(signal.SIGSTOP)
                time.sleep(0.04)  # longer than a program may take
                hosts.serving.popen.send_signal(signal.SIGCONT)
                time.sleep(0.02)  # connections begin
            return hosts.server.status()["reasons"].get("not-entered")
        until(is_counted, "a connection whose program does not enter the rings", 30)

    exchanged(hosts, "--connections", "8", "--rounds", "60", "--lives", "60", "--seed", seed, meanwhile=stop_and_go)
    must_have_taken(hosts.server, 1)


@case
def stack_at_both_ends_ipv6(hosts, seed):
    both(hosts, lambda: exchanged(hosts, "--connections", "16", "--rounds", "1500", "--seed", seed, family=6), 12)


def both(hosts, work, least):
    for host in (hosts.client, hosts.server):
        host.start_stack()
    work()
    for host in (hosts.client, hosts.server):
        must_have_taken(host, least)


@case
def stack_at_the_server(hosts, seed):
    hosts.server.start_stack()
    exchanged(hosts, "--connections", "16", "--rounds", "1500", "--seed", seed)
    must_have_taken(hosts.server, 12)


@case
def stack_at_the_client(hosts, seed):
    hosts.client.start_stack()
    exchanged(hosts, "--connections", "16", "--rounds", "1500", "--seed", seed)
    must_have_taken(hosts.client, 12)


@case
def stacks_that_come_and_go(hosts, seed):
    """Each connection is given back in mid-stream, on the same descriptor."""
    taken = []

    def in_turns():
        for _ in range(4):
            for host in (hosts.client, hosts.server):
                host.start_stack()
            time.sleep(1)  # for how long they carry: what they have taken by then is checked
            taken.extend(host.stop_stack() for host in (hosts.client, hosts.server))

    exchanged(hosts, "--connections", "16", "--rounds", "1500", "--pause", "2", "--seed", seed, meanwhile=in_turns)
    if sum(number for number, _ in taken) < 12 or any(number != returned for number, returned in taken):
        raise Failure(f"taken and given back: {taken}")
    must_have_counted(hosts.server, "stack-ended")


@case(part=SLOW)
def taken_again(hosts, seed):
    """What was detached goes back to the kernel, and is carried again after attach."""
    for host in (hosts.client, hosts.server):
        host.start_stack()

    def detach_and_attach():
        for host in (hosts.client, hosts.server):
            time.sleep(1.5)  # for how long they carry
            host.command("detach", "--all")
            time.sleep(0.3)  # for how long the kernel carries
            host.command("attach", "--all")

    exchanged(hosts, "--connections", "8", "--rounds", "4500", "--pause", "1", "--seed", seed, meanwhile=detach_and_attach)
    for host in (hosts.client, hosts.server):
        must_have_counted(host, "socket-needed")
        must_have_taken(host, 11)


@case
def devices_and_neighbours_that_change(hosts, seed):
    """The cable is cut for a moment, over and over; then the neighbour gets another link address. The kernel waits, and goes on."""
    for host in (hosts.client, hosts.server):
        host.start_stack()

    def disturb():
        for host in (hosts.client, hosts.server):
            time.sleep(1)  # for how long they carry
            cut_cable(host, 0.3)
        time.sleep(1.5)  # for how long they carry
        change_link_address(hosts.server)

    exchanged(hosts, "--connections", "8", "--rounds", "2500", "--pause", "1", "--seed", seed, meanwhile=disturb)
    for host in (hosts.client, hosts.server):
        must_have_taken(host, 11)


@case
def pods_are_carried(hosts, seed):
    """A server in a network namespace behind its host: packets leave by the host's device, one router further."""
    path = hosts.directory / "broker"
    broker = hosts.server.process("broker", [hosts.programs_in / "sidestepd", "--address", path])
    until(path.exists, "the broker of the pods", 10, broker.must_run)
    pod = Pod(hosts, "pod", hosts.server, hosts.client, path)
    for family in (4, 6):
        hosts.server.start_stack("--broker", path)
        exchanged(hosts, "--connections", "8", "--rounds", "1500", "--seed", seed, server=pod, family=family)
        must_have_taken(hosts.server, 6)


@case
def few_capabilities_are_enough(hosts, seed):
    """The stack has those of its unit. Its server has a privileged port, which a give-back binds."""
    hosts.server.start_stack(confined=True)
    exchanged(hosts, "--connections", "8", "--rounds", "1500", "--seed", seed, port=80)
    must_have_taken(hosts.server, 6)


LIVELY = ("--connections", "24", "--rounds", "150", "--pause", "1", "--lives")


@case(part=SLOW)
def killed_workers(hosts, seed):
    """SIGKILL at any instruction: the keeper gives the connections back, and starts another worker."""
    chosen = random.Random(int(seed))
    for host in (hosts.client, hosts.server):
        host.start_stack()

    def kill():
        for _ in range(4):
            time.sleep(chosen.uniform(0.1, 0.6))  # any moment
            host = chosen.choice((hosts.client, hosts.server))
            worker = host.worker()
            kill_worker(host)
            host.another_worker(worker)

    exchanged(hosts, *LIVELY, "18", "--seed", seed, meanwhile=kill)
    restored = hosts.client.restored() + hosts.server.restored()
    taken = sum(host.stop_stack()[0] for host in (hosts.client, hosts.server))
    if restored < 16 or taken < 16:
        raise Failure(f"the keepers have given back {restored} connections, and the last workers have taken {taken}")


@case(part=SLOW)
def replaced_workers(hosts, seed):
    """SIGHUP: the worker gives everything back, and the next one takes new connections."""
    for host in (hosts.client, hosts.server):
        host.start_stack()

    def replace():
        for host in (hosts.client, hosts.server):
            worker = host.worker()
            time.sleep(1)  # for how long it carries
            replace_worker(host)
            host.another_worker(worker)

    exchanged(hosts, *LIVELY, "12", "--seed", seed, meanwhile=replace)
    for host in (hosts.client, hosts.server):
        if host.restored():
            raise Failure(f"a worker of {host.name} has left {host.restored()} connections to the keeper")
        must_have_taken(host, 16)


@case
def killed_keeper(hosts, seed):
    """The worker gives everything back, and ends."""
    hosts.server.start_stack()
    taken = []

    def kill():
        time.sleep(2)  # for how long it carries
        taken.append(kill_keeper(hosts.server))

    exchanged(hosts, *LIVELY, "12", "--seed", seed, meanwhile=kill)
    if taken[0] < 8:
        raise Failure(f"the worker has taken {taken[0]} connections")


@case
def killed_keepers_and_workers(hosts, seed):
    """Both at once, in either order: the standby gives everything back, and ends."""
    chosen = random.Random(int(seed))
    for host in (hosts.client, hosts.server):
        host.start_stack()

    def kill():
        for host in (hosts.client, hosts.server):
            time.sleep(chosen.uniform(0.6, 1.2))  # any moment, while it carries
            if not kill_keeper_and_worker(host, chosen):
                raise Failure(f"the standby of {host.name} has given nothing back")
            host.start_stack()

    exchanged(hosts, *LIVELY, "9", "--seed", seed, meanwhile=kill)
    for host in (hosts.client, hosts.server):
        host.stop_stack()


@case
def another_broker(hosts, seed):
    """The stack gives everything back when the broker ends, and joins the next one."""
    hosts.server.start_stack()

    def exchange_broker():
        time.sleep(1)  # for how long it carries
        hosts.server.broker.stop()
        hosts.server.start_broker()

    exchanged(hosts, *LIVELY, "12", "--seed", seed, meanwhile=exchange_broker)
    until(lambda: "another one is started" in hosts.server.stack.output(), "the stack to go on", 10)
    hosts.server.stop_stack()
