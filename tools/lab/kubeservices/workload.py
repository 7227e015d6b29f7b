"""The Services of a cluster, and which of them are dialled.

Each has an address of its own and the same number of endpoints, which no other Service shares. Three lead to pods that
exist: the first, the middle and the last, as the cost of a list of rules depends on the place in it.
"""

import ipaddress
from dataclasses import dataclass, replace

NAMESPACE = "bench"
#: Where the addresses of Services are (the one before is the API server's own), and those of pods; kube-proxy is told the
#: second.
SERVICE_BASE = ipaddress.IPv4Address("10.96.0.2")
POD_RANGE = "10.128.0.0/9"
#: Endpoints that nobody dials begin here, pods that exist there.
ELSEWHERE = ipaddress.IPv4Address("10.128.0.1")
NODE = ipaddress.IPv4Address("10.244.0.1")
CLIENT = ipaddress.IPv4Address("10.244.0.2")
FIRST_POD = ipaddress.IPv4Address("10.244.0.11")
POD_PREFIX = 16
PORT, TARGET_PORT = 80, 8080


@dataclass(frozen=True)
class Service:
    name: str
    vip: str
    endpoints: tuple

    def with_last(self, address):
        """The same Service with another last endpoint."""
        return replace(self, endpoints=(*self.endpoints[:-1], address))

    @property
    def target(self):
        return f"{self.vip}:{PORT}"


class Workload:
    def __init__(self, size, endpoints):
        #: One pod more than a Service has endpoints: it takes the place of the last one.
        self.pods = [str(FIRST_POD + number) for number in range(endpoints + 1)]
        places = sorted({0, size // 2, size - 1})
        self.services = [
            Service(
                name=f"s{number}",
                vip=str(SERVICE_BASE + number),
                endpoints=(
                    tuple(self.pods[:-1])
                    if number in places
                    else tuple(str(ELSEWHERE + number * endpoints + each) for each in range(endpoints))
                ),
            )
            for number in range(size)
        ]
        self.first, self.middle, self.last = (self.services[n] for n in (0, size // 2, size - 1))
        self.dialled = [self.services[n] for n in places]
        self.dialled_names = {service.name for service in self.dialled}

    @property
    def size(self):
        return len(self.services)

    def direct(self):
        """The pods behind a Service, as the client dials them without one."""
        return ",".join(f"{address}:{TARGET_PORT}" for address in self.pods[:-1])
