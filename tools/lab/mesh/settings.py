"""Ports, users and names that the parts of a mesh agree on."""

from dataclasses import dataclass

#: Of the service: `PORT` for connections that are kept a while, `FRESH` for those that carry one request all the way.
PORT, FRESH = 8080, 8081
PORTS = (PORT, FRESH)
#: The service's own address, which no pod has.
VIP = "10.96.0.10"
BODY = '{"status":"ok","service":"sidestep-mesh"}'
#: Of the applications; a sidecar's is CAPTURE.user.
APPLICATION = 1000
DOMAIN = "cluster.local"
GENERATOR = "sidestep-bench"


@dataclass(frozen=True)
class Capture:
    """The options of istio-iptables, and of `sidestep capture`."""

    outbound: int = 15001
    inbound: int = 15006
    user: int = 1337
    group: int = 1337
    #: Of the sidecar itself: metrics and health.
    not_inbound: tuple = (15090, 15021, 15020)

    def options(self):
        ports = ",".join(map(str, self.not_inbound))
        words = f"-p {self.outbound} -z {self.inbound} -u {self.user} -g {self.group} -m REDIRECT".split()
        return [*words, "-i", "*", "-x", "", "-b", "*", "-d", ports]


CAPTURE = Capture()


def identity(role):
    return f"spiffe://{DOMAIN}/ns/bench/sa/{role}"
