"""All addresses. All nodes are copies of one node: in each the same addresses mean the same.

    node     eth0 10.251.0.11 --- there 10.251.0.20: the pods of other nodes
     |  |
     |  here  10.244.1.8/29: pods of this node
    pod       10.244.1.2: who asks, and a backend itself

Who asks besides: `outside` 10.252.0.2, a host beyond a device of the node; `remote` 10.244.8.2, a pod of another node.
"""

NODE_NAME = "n1"
OTHER_NODE = "n2"
ZONE = "za"
OTHER_ZONE = "zb"

# The control plane's own network, which is a bridge in its namespace. Every node has an address of its own in it.
CONTROL = "10.250.0.1"
CONTROL_LENGTH = 24
API_PORT = 6443

POD_NETWORKS = ("10.244.0.0/16", "fd00:244::/32")
SERVICE_NETWORKS = ("10.96.0.0/16", "fd00:96::/108")

NODE = {4: "10.251.0.11", 6: "fd00:251::11"}
THERE = {4: "10.251.0.20", 6: "fd00:251::20"}
NODE_LENGTH = {4: 24, 6: 64}
# An address of the node that is not its primary one.
SECOND = {4: "10.251.7.7", 6: "fd00:251:7::7"}
# The pods' default gateway.
GATEWAY = {4: "169.254.1.1", 6: "fe80::1"}

POD = {4: "10.244.1.2", 6: "fd00:244:1::2"}
HERE = {4: [f"10.244.1.{n}" for n in range(10, 14)], 6: [f"fd00:244:1::{n}" for n in range(10, 14)]}
HERE_NETWORK = {4: "10.244.1.8/29", 6: "fd00:244:1::10/124"}
AWAY = {4: [f"10.244.9.{n}" for n in range(10, 16)], 6: [f"fd00:244:9::{n}" for n in range(10, 16)]}

# The network between the node and a host outside of the cluster; a pod of another node that calls this one.
OUTSIDE_NODE = {4: "10.252.0.1", 6: "fd00:252::1"}
OUTSIDE = {4: "10.252.0.2", 6: "fd00:252::2"}
REMOTE = {4: "10.244.8.2", 6: "fd00:244:8::2"}

BACKEND_PORTS = (8080, 8081, 9090)


def backends(family):
    """Every address of a family at which backends listen."""
    return [POD[family], NODE[family], *HERE[family], *AWAY[family]]


def of_client(who):
    """The addresses from which an asker's packets come, if they keep their source."""
    return {"outside": OUTSIDE, "remote": REMOTE, "guest": POD}[who].values()


def is_of_node(address):
    """Whether the node may use it as a source."""
    own = [address for of_family in (NODE, SECOND, GATEWAY, OUTSIDE_NODE) for address in of_family.values()]
    return address in own or address.startswith("fe80:")


def length(family):
    """The prefix length of a single address."""
    return 32 if family == 4 else 128


def endpoint(address, port):
    """The form in which results have it."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
