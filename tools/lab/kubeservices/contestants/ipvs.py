"""What kube-proxy makes of Services in its IPVS mode: a virtual server each, and their addresses at a dummy device, so
that the node takes the packets in."""

from pathlib import Path

from ...netns import inside, must
from .. import workload
from .base import Rules

#: There in every namespace of a kernel that has IPVS.
TABLE = Path("/proc/net/ip_vs")
DEVICE = "kube-ipvs0"
#: As kube-proxy sets them: packets of IPVS are seen by connection tracking, and so find their way back.
SETTINGS = ("net.ipv4.vs.conntrack=1", "net.ipv4.vs.conn_reuse_mode=0", "net.ipv4.vs.expire_nodest_conn=1")


class Ipvs(Rules):
    name, title = "ipvs", "IPVS"
    command = ("ipvsadm", "--restore")

    @classmethod
    def missing(cls, places):
        if not TABLE.exists():
            return f"this kernel has no IPVS ({TABLE} is not there; modprobe ip_vs, where it is a module)"
        return super().missing(places)

    def fill(self):
        must(inside(self.cluster.node, ["sysctl", "-qw", *SETTINGS]))
        must(inside(self.cluster.node, ["ip", "link", "add", DEVICE, "type", "dummy"]))
        return super().fill()

    def timed(self, text):
        addresses = "".join(f"addr replace {service.vip}/32 dev {DEVICE}\n" for service in self.load.services)
        must(inside(self.cluster.node, ["ip", "-batch", "-"]), addresses, self.plan.load_limit)
        return super().timed(text)

    def everything(self):
        return "".join(line for service in self.load.services for line in servers(service, self.is_whole(service)))

    def prepare(self, old, new):
        come = [address for address in new.endpoints if address not in old.endpoints]
        gone = [address for address in old.endpoints if address not in new.endpoints]
        lines = [server(new, address) for address in come]
        lines += [f"-d -t {virtual(old)} -r {address}:{workload.TARGET_PORT}\n" for address in gone]
        return "".join(lines)


def virtual(service):
    return f"{service.vip}:{workload.PORT}"


def servers(service, whole):
    yield f"-A -t {virtual(service)} -s rr\n"
    if whole:
        yield from (server(service, address) for address in service.endpoints)


def server(service, address):
    return f"-a -t {virtual(service)} -r {address}:{workload.TARGET_PORT} -m -w 1\n"
