"""What is done to a host: ends of processes, and changes of its network. Each returns once it is done; what comes of it, the case
sees."""

import os
import re
import signal
import time
from pathlib import Path

from testkit.failure import Failure
from testkit.wait import until


def kill_worker(host):
    """As a crash would. The keeper starts another one."""
    os.kill(host.worker(), signal.SIGKILL)


def kill_keeper(host):
    """The worker gives everything back, and ends. Returns how many connections it had taken."""
    stack, family = host.stack, host.stack_children()
    os.kill(stack.pid, signal.SIGKILL)
    stack_has_ended(host, family)
    said = re.findall(r"taken (\d+), given back (\d+)", stack.output())
    if not said or any(taken != returned for taken, returned in said):
        raise Failure(f"the worker of {host.name} has not given back what it had taken:\n{stack.tail()}")
    return int(said[-1][0])


def kill_keeper_and_worker(host, chosen):
    """In either order. The standby gives everything back, and ends. Returns how many connections that were."""
    stack, family = host.stack, host.stack_children()
    both = [host.worker(), stack.pid]
    for pid in both:
        os.kill(pid, signal.SIGSTOP)  # neither has time to do the other's work
    for pid in chosen.sample(both, 2):
        os.kill(pid, signal.SIGKILL)
    stack_has_ended(host, family)
    said = re.search(r"the standby has given (\d+) connections back", stack.output())
    if not said:
        raise Failure(f"the standby of {host.name} has given nothing back:\n{stack.tail()}")
    return int(said[1])


def stack_has_ended(host, family):
    host.stack.popen.wait(10)
    for pid in family:
        has_ended(host, pid)
    host.stack = None


def has_ended(host, pid):
    until(lambda: not Path(f"/proc/{pid}").exists(), f"a process of the stack of {host.name} to end", 15)


def kill_standby(host):
    """The worker gives everything back, and the keeper replaces both."""
    worker = host.worker()
    [standby] = [pid for pid in host.stack_children() if pid != worker]
    os.kill(standby, signal.SIGKILL)
    has_ended(host, worker)


def kill_broker(host):
    """The worker gives everything back, and the keeper joins the next broker."""
    worker = host.worker()
    host.broker.popen.kill()
    host.broker.popen.wait()
    has_ended(host, worker)
    host.start_broker()


def replace_worker(host):
    """The worker gives everything back, and another one takes its place."""
    worker = host.worker()
    os.kill(host.stack.pid, signal.SIGHUP)
    has_ended(host, worker)


def cut_cable(host, seconds):
    """The device is down for so long. Returns when it was up again."""
    host.namespace.ip(f"link set {host.device} down")
    time.sleep(seconds)
    host.namespace.ip(f"link set {host.device} up")
    is_up = time.monotonic()
    # The kernel removes addresses of IPv6 from a device that is down.
    host.namespace.ip(f"-6 address replace {host.addresses[6]}/64 dev {host.device} nodad")
    return is_up


def change_route(host, peer):
    """A route of its own to the peer, by the same device; or none again."""
    route = f"{peer.addresses[4]}/32 dev {host.device}"
    is_there = host.namespace.ip(f"route show {peer.addresses[4]}/32")
    host.namespace.ip(f"route {'del' if is_there else 'add'} {route}")


def change_link_address(host, address="02:00:00:00:00:77"):
    """The other host hears of it as the kernel asks for its neighbours again."""
    host.namespace.ip(f"link set {host.device} address {address}")
    host.namespace.ip(f"link set {host.device} arp off")
    host.namespace.ip(f"link set {host.device} arp on")


def forget_neighbour(host, peer):
    """The kernel asks for it again."""
    host.namespace.ip(f"neigh del {peer.addresses[4]} dev {host.device}")
