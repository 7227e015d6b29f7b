"""What the commands tell of connections that the stack carries, or does not."""

import json
import subprocess

from hosts.cases import MINIMUM_TTL, exchanged, must_have_taken
from hosts.mesh import LASTING, carried
from hosts.registry import SLOW, case
from testkit.failure import Failure
from testkit.report import Report
from testkit.wait import until


def program_of(host):
    """Pid of the program under Sidestep that the host runs."""
    status = host.status()
    return next(one["pid"] for one in status["processes"] if one["pid"] != status["stack"]["pid"])


def explained(host, what):
    return json.loads(host.command("explain", str(what), "--json"))


def must(condition, what):
    if not condition:
        raise Failure(str(what))


@case(part=SLOW)
def connections_by_the_stack(hosts, seed):
    """`status`, `explain` and the report name the stack, what it carries, and why it does not."""
    report = hosts.directory / "report.jsonl"
    hosts.env = {**hosts.env, "SIDESTEP_REPORT": str(report)}
    server = hosts.server
    for host in (hosts.client, server):
        host.start_stack()

    def look():
        until(lambda: carried(server, "stack") >= 4, "connections by the stack", 20)
        pid = program_of(server)
        stack = server.status()["stack"]
        must(stack["pid"] == server.stack.pid and stack["carries"] >= 4 and stack["upgraded"] >= 4, stack)
        must(f"Stack: pid {stack['pid']}, carries {stack['carries']} connections" in server.command("status"), stack)
        until(lambda: server.status()["stack"]["ring_tx"] > 0, "bytes by the stack", 10)
        metrics = dict(line.rsplit(" ", 1) for line in server.command("status", "--metrics").splitlines() if not line.startswith("#"))
        must(int(metrics["sidestep_stack_connections"]) >= 4 and int(metrics['sidestep_directions{carrier="stack"}']) >= 8, metrics)
        must(int(metrics['sidestep_stack_bytes_total{direction="to-programs"}']) > 0, metrics)
        connections = explained(server, pid)["connections"]
        must(all(one["carriers"] == ["stack", "stack"] and "to another host" in one["why"] for one in connections), connections)
        one = connections[0]["name"]
        must("to another host" in server.command("explain", one), one)
        server.command("detach", one)
        until(lambda: explained(server, one)["connections"][0]["carriers"] == ["kernel", "kernel"], "one to be detached", 10)
        must("detached" in explained(server, one)["connections"][0]["why"], explained(server, one))

    exchanged(hosts, *LASTING, "--seed", seed, meanwhile=look)
    summed = Report(report)
    must(0 < summed.stack_rx <= summed.ring_rx and 0 < summed.stack_tx <= summed.ring_tx, summed.lines)
    for host in (hosts.client, server):
        must_have_taken(host, 4)
    gone = server.status()
    must(gone["stack"]["pid"] is None and gone["stack"]["returned"] == gone["stack"]["upgraded"], gone["stack"])
    must("Stack: none now; it has taken connections" in server.command("status"), "a stack that has ended is told of")


@case
def connections_that_the_stack_declines(hosts, seed):
    """Each has its reason while it waits, and the process has the sum."""
    hosts.server.start_stack()

    def look():
        pid = until(lambda: hosts.server.status()["waiting"], "an offer that waits", 20)[0]["pid"]
        declined = lambda: [one for one in explained(hosts.server, pid)["connections"] if one["reason"]]  # noqa: E731
        one = until(declined, "a declined one", 10)[0]
        must(one["name"] is None and one["reason"] == "kernel-only" and "only the kernel" in one["why"], one)
        must(one["carriers"] == ["kernel", "kernel"] and one["remote"].startswith(hosts.client.addresses[4]), one)

    exchanged(hosts, "--connections", "4", "--rounds", "2000", "--pause", "1", "--seed", seed, serve=MINIMUM_TTL, meanwhile=look)
    must_have_taken(hosts.server, 0)
    stack = hosts.server.status()["stack"]
    must(stack["reasons"].get("kernel-only", 0) >= 4 and stack["upgraded"] == 0, stack)


def doctor(host, device):
    """What the doctor finds of a device, and what it advises. Its exit code tells of the whole machine."""
    words = host.around([host.bed.stack_program.with_name("sidestep"), "doctor", "--json", "--device", device])
    said = json.loads(subprocess.run(words, capture_output=True, text=True, env=host.bed.env).stdout)
    return next(check for check in said["machine"] if check["name"] == "stack's device")


@case
def the_doctor_knows_devices(hosts, seed):
    """It says what a device can do, what speaks against it, and what to do; `seed` changes nothing."""
    host = hosts.server
    check = doctor(host, host.device)
    must(all(what in check["found"] for what in ("driver veth", "queues 1", "by tc ingress", "its peer is on this host")), check)
    must(check["verdict"] == "limited" and "a container" in check["advice"], check)
    host.namespace.ip("link add name bridge0 type bridge")
    check = doctor(host, "bridge0")
    for found, advice in ("it is down", "ip link set bridge0 up"), ("a bridge device", "ip route get ADDRESS"):
        must(found in check["found"] and advice in check["advice"], check)
    must("see `ip link`" in doctor(host, "nothing0")["advice"], "a device that is not there")
