"""Connections through tunnels: they stay with the kernel, and what is inside is not taken for what is outside."""

import sys
from pathlib import Path

from hosts.cases import exchanged, must_have_counted, must_have_taken
from hosts.registry import case
from hosts.world import Host, Pod
from testkit.namespaces import Namespace
from testkit.wait import until

VXLAN = "id 42 dstport 4789"
SOURCE = 40000
FORWARDER = Path(__file__).with_name("forwarder.py")


class Guest(Host):
    """A namespace, or the host's own, whose programs use a broker at a path."""

    def __init__(self, bed, name, namespace, addresses, broker):
        self.bed, self.name, self.namespace, self.addresses, self.broker_path = bed, name, namespace, addresses, broker

    def around(self, words):
        return super().around(["env", f"SIDESTEP_BROKER={self.broker_path}", *words])


def broker_of(hosts, host):
    path = hosts.directory / f"{host.name}-broker"
    broker = host.process("broker", [hosts.programs_in / "sidestepd", "--address", path])
    until(path.exists, "the broker of the pods", 10, broker.must_run)
    return path


def exchanged_by_pods(hosts, pods, seed, device=None):
    client, server = pods
    for host, pod in zip((hosts.client, hosts.server), pods):
        host.start_stack("--broker", pod.broker_path, device=device)
    exchanged(hosts, "--connections", "8", "--rounds", "1500", "--seed", seed, client=client, server=server)


def stay_with_the_kernel(hosts, pods, seed):
    """The hosts have the stack for their cable. Each pod's route to the other one leads into a tunnel."""
    exchanged_by_pods(hosts, pods, seed)
    for host, pod in zip((hosts.client, hosts.server), pods):
        must_have_counted(pod, "other-device")
        must_have_taken(host, 0)


def tunnelled_pods(hosts, device):
    """A pod behind each host, and the pods' networks by the device of this name, which is at 10.9.200.1 and .2."""
    pods = []
    for number, (host, other) in enumerate(((hosts.client, hosts.server), (hosts.server, hosts.client)), 1):
        pods.append(Pod(hosts, f"pod{number}", host, other, broker_of(hosts, host), number))
    for number, host in ((1, hosts.client), (2, hosts.server)):
        host.namespace.ip(f"address add 10.9.200.{number}/24 dev {device}")
        host.namespace.ip(f"link set {device} up")
        host.namespace.ip(f"route replace 10.9.{3 - number}.0/24 via 10.9.200.{3 - number} dev {device} onlink")
    return pods


def between(hosts, host):
    """Both ends of a tunnel, as ip-link(8) names them."""
    other = hosts.server if host is hosts.client else hosts.client
    return f"local {host.addresses[4]} remote {other.addresses[4]}"


def vxlan(hosts):
    """As flannel lays networks of pods."""
    for host in (hosts.client, hosts.server):
        host.namespace.ip(f"link add vx0 type vxlan {VXLAN} {between(hosts, host)} dev {host.device}")
    return tunnelled_pods(hosts, "vx0")


@case
def pods_by_vxlan(hosts, seed):
    stay_with_the_kernel(hosts, vxlan(hosts), seed)


@case
def pods_by_vxlan_whose_device_the_stack_has(hosts, seed):
    """The kernel encapsulates what the stack sends, and the stack sees what the kernel has unpacked."""
    exchanged_by_pods(hosts, vxlan(hosts), seed, device="vx0")
    for host in (hosts.client, hosts.server):
        must_have_taken(host, 6)


@case
def pods_by_a_tunnel_without_link_addresses(hosts, seed):
    """As WireGuard, IPIP and GRE: packets without an Ethernet header, here in datagrams of a program."""
    for host in (hosts.client, hosts.server):
        host.namespace.ip("tuntap add tun0 mode tun")
        host.namespace.ip("link set tun0 mtu 1400")
        other = hosts.server if host is hosts.client else hosts.client
        words = [sys.executable, FORWARDER, "tun0", host.addresses[4], other.addresses[4]]
        host.process("forwarder", words)
    stay_with_the_kernel(hosts, tunnelled_pods(hosts, "tun0"), seed)


@case
def tenants_with_the_hosts_addresses(hosts, seed):
    """A tunnel ends in a namespace of its own on each host. There the hosts' addresses and ports exist once more."""
    guests, tenants = [], []
    for host in (hosts.client, hosts.server):
        broker = broker_of(hosts, host)
        namespace = Namespace(f"{host.name}-tenant")
        hosts.stack.callback(namespace.remove)
        host.namespace.ip(f"link add vx0 type vxlan {VXLAN} {between(hosts, host)} dev {host.device}")
        host.namespace.ip(f"link set vx0 netns {namespace.name}")
        namespace.ip(f"address add {host.addresses[4]}/24 dev vx0")
        namespace.ip("link set vx0 up")
        guests.append(Guest(hosts, host.name, host.namespace, host.addresses, broker))
        tenants.append(Guest(hosts, f"{host.name}-tenant", namespace, host.addresses, broker))
        host.start_stack("--broker", broker)
    options = ("--connections", "4", "--source", SOURCE, "--pause", "1", "--seed", seed)

    def outside():
        exchanged(hosts, *options, "--rounds", "1500", client=guests[0], server=guests[1])

    exchanged(hosts, *options, "--rounds", "4000", client=tenants[0], server=tenants[1], meanwhile=outside)
    for host, guest in zip((hosts.client, hosts.server), guests):
        must_have_counted(guest, "other-device")
        must_have_taken(host, 4)
