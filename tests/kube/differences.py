"""Where kube-proxy's two modes and Sidestep differ, each with its reason.

What is not in this list must be the same in all of them, and what is in it must be as it says.
"""

from collections import namedtuple

# `applies` gets a probe and the result that the API requires; `seen` has the results of the worlds that differ, in the
# words of a prober. Worlds that are not in `seen` have the result that the API requires.
Difference = namedtuple("Difference", "name about applies seen")

SIDESTEP = "sidestep"
NFTABLES = "nftables"
IPTABLES = "iptables"
REFUSED = frozenset({"refused"})
SILENCE = frozenset({"timeout"})
FORBIDDEN = frozenset({"EPERM"})


# Whose calls Sidestep sees at the socket. What others send it sees as packets only, as kube-proxy does.
BY_SOCKET = ("pod", "node")


def is_by_socket(probe):
    return probe.who in BY_SOCKET


def is_udp_on_node(probe):
    return probe.who == "node" and probe.how.startswith("udp")


def is_external(probe):
    return probe.place in ("external", "balancer")


DIFFERENCES = [
    Difference(
        "source-ranges",
        "A Service with loadBalancerSourceRanges, used on the node itself: kube-proxy filters packets by their source. "
        "Sidestep leaves sockets that dial the load balancer's address to the kernel, and translates packets only at "
        "the node's devices.",
        lambda probe, expected: probe.filtered and probe.who == "node",
        {SIDESTEP: SILENCE}),
    Difference(
        "local-without-local-udp-on-node",
        "As local-without-local, by UDP on the node itself: with kube-proxy's rule send() fails with EPERM, with "
        "Sidestep with ECONNREFUSED.",
        lambda probe, expected: expected.verdict == "dropped" and is_udp_on_node(probe),
        {SIDESTEP: REFUSED, NFTABLES: FORBIDDEN, IPTABLES: FORBIDDEN}),
    Difference(
        "local-without-local",
        "A Service with traffic policy Local whose endpoints are all on other nodes: kube-proxy drops the packets, so "
        "that programs wait for their timeout. Sidestep refuses at once.",
        lambda probe, expected: expected.verdict == "dropped" and is_by_socket(probe) and not probe.filtered,
        {SIDESTEP: REFUSED}),
    Difference(
        "external-without-endpoints-udp-on-node",
        "As external-without-endpoints-on-node, by UDP: with kube-proxy's rule in nftables mode send() fails with "
        "EPERM.",
        lambda probe, expected: expected.verdict == "refused" and is_external(probe) and is_udp_on_node(probe),
        {SIDESTEP: REFUSED, NFTABLES: FORBIDDEN, IPTABLES: SILENCE}),
    Difference(
        "external-without-endpoints-on-node",
        "An external or load balancer's address of a Service without endpoints, used on the node itself: in iptables "
        "mode kube-proxy has no rule for the address, and the packet is routed as any other. In nftables mode, and "
        "with Sidestep, the connection is refused.",
        lambda probe, expected: expected.verdict == "refused" and is_external(probe) and probe.who == "node",
        {IPTABLES: SILENCE}),
    Difference(
        "without-endpoints-udp-on-node",
        "A ClusterIP without endpoints by UDP on the node itself: with kube-proxy's rule send() fails with EPERM, "
        "with Sidestep with ECONNREFUSED, as in a pod.",
        lambda probe, expected: expected.verdict == "refused" and probe.place == "cluster" and is_udp_on_node(probe),
        {SIDESTEP: REFUSED, NFTABLES: FORBIDDEN, IPTABLES: FORBIDDEN}),
    Difference(
        "sendto-without-endpoints",
        "sendto() on an unconnected UDP socket to a Service without endpoints: kube-proxy rejects the packet, which "
        "the kernel does not report to such a socket. With Sidestep sendto() fails with ECONNREFUSED.",
        lambda probe, expected: (expected.verdict == "refused" and "sendto" in probe.how and probe.is_service
                                 and is_by_socket(probe)),
        {SIDESTEP: REFUSED, NFTABLES: SILENCE, IPTABLES: SILENCE}),
    Difference(
        "loopback-nodeport",
        "A NodePort at 127.0.0.1, used on the node: kube-proxy serves it in iptables mode, and so does Sidestep; in "
        "nftables mode kube-proxy does not.",
        lambda probe, expected: probe.place == "loopback" and probe.who == "node" and probe.family == 4,
        {NFTABLES: REFUSED}),
    Difference(
        "loopback6-nodeport",
        "A NodePort at ::1, used on the node: no program listens there, so the connection is refused. In iptables "
        "mode kube-proxy drops it if the external traffic policy is Local and no endpoint is local.",
        lambda probe, expected: probe.place == "loopback" and probe.who == "node" and probe.drops_external,
        {IPTABLES: SILENCE}),
    Difference(
        "second-address-nodeport",
        "A NodePort at an address of the node that is not its primary one: by default kube-proxy serves it in "
        "iptables mode, and so does Sidestep; in nftables mode kube-proxy serves the primary address only.",
        lambda probe, expected: probe.place == "second",
        {NFTABLES: REFUSED}),
    Difference(
        "unserved-port",
        "A port that a Service does not have, at its ClusterIP: in nftables mode kube-proxy rejects the packet. In "
        "iptables mode, and with Sidestep, the packet is routed as any other.",
        lambda probe, expected: probe.place == "unserved",
        {NFTABLES: REFUSED}),
]


def difference_of(probe, expected):
    """The difference that applies to this probe, or None."""
    return next((d for d in DIFFERENCES if d.applies(probe, expected)), None)


def in_words(expected):
    """What a prober reports if it sees what the API requires."""
    if expected.verdict == "served":
        return expected.backends
    return REFUSED if expected.verdict == "refused" else SILENCE


def expected_by(kind, probe, expected):
    """The expected result in a world of that kind: names, and whether only one of them is expected instead of all."""
    difference = difference_of(probe, expected)
    if difference and kind in difference.seen:
        words, is_sticky = difference.seen[kind], False
    else:
        words, is_sticky = in_words(expected), expected.sticky
    # The kernel does not report a refused packet to an unconnected socket.
    is_by_packet = kind != SIDESTEP or not probe.is_service or not is_by_socket(probe)
    return (SILENCE if words == REFUSED and "sendto" in probe.how and is_by_packet else words), is_sticky
