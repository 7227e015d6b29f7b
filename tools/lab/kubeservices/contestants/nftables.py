"""Rules as kube-proxy writes them in its nftables mode.

map service-ips     address . protocol . port : goto service-...     one look-up for all Services
  service-...       numgen random mod N vmap { 0 : goto endpoint-..., ... }
    endpoint-...    DNAT
"""

from .. import workload
from .base import Rules
from .kubenames import PROTOCOL, digest

HASH = 8
TABLE = "ip kube-proxy"
#: Where Services lead that have no chain of their own.
HOLLOW = "mark-for-masquerade"

#: What is there before any Service.
BASE = """\
add table ip kube-proxy
add set ip kube-proxy cluster-ips { type ipv4_addr ; }
add set ip kube-proxy nodeport-ips { type ipv4_addr ; }
add map ip kube-proxy service-ips { type ipv4_addr . inet_proto . inet_service : verdict ; }
add map ip kube-proxy service-nodeports { type inet_proto . inet_service : verdict ; }
add map ip kube-proxy no-endpoint-services { type ipv4_addr . inet_proto . inet_service : verdict ; }
add map ip kube-proxy no-endpoint-nodeports { type inet_proto . inet_service : verdict ; }
add map ip kube-proxy firewall-ips { type ipv4_addr . inet_proto . inet_service : verdict ; }
add chain ip kube-proxy filter-prerouting { type filter hook prerouting priority -110 ; }
add chain ip kube-proxy filter-input { type filter hook input priority -110 ; }
add chain ip kube-proxy filter-forward { type filter hook forward priority -110 ; }
add chain ip kube-proxy filter-output { type filter hook output priority -110 ; }
add chain ip kube-proxy filter-output-post-dnat { type filter hook output priority -90 ; }
add chain ip kube-proxy nat-prerouting { type nat hook prerouting priority -100 ; }
add chain ip kube-proxy nat-output { type nat hook output priority -100 ; }
add chain ip kube-proxy nat-postrouting { type nat hook postrouting priority 100 ; }
add chain ip kube-proxy services
add chain ip kube-proxy mark-for-masquerade
add chain ip kube-proxy masquerading
add chain ip kube-proxy cluster-ips-check
add chain ip kube-proxy service-endpoints-check
add chain ip kube-proxy nodeport-endpoints-check
add chain ip kube-proxy firewall-check
add rule ip kube-proxy mark-for-masquerade mark set mark or 0x4000
add rule ip kube-proxy masquerading mark and 0x4000 == 0 return
add rule ip kube-proxy masquerading mark set mark xor 0x4000
add rule ip kube-proxy masquerading masquerade fully-random
add rule ip kube-proxy filter-prerouting ct state new jump firewall-check
add rule ip kube-proxy filter-input ct state new jump nodeport-endpoints-check
add rule ip kube-proxy filter-input ct state new jump service-endpoints-check
add rule ip kube-proxy filter-forward ct state new jump service-endpoints-check
add rule ip kube-proxy filter-forward ct state new jump cluster-ips-check
add rule ip kube-proxy filter-output ct state new jump service-endpoints-check
add rule ip kube-proxy filter-output ct state new jump firewall-check
add rule ip kube-proxy filter-output-post-dnat ct state new jump cluster-ips-check
add rule ip kube-proxy nat-prerouting jump services
add rule ip kube-proxy nat-output jump services
add rule ip kube-proxy nat-postrouting jump masquerading
add rule ip kube-proxy cluster-ips-check ip daddr @cluster-ips reject
add rule ip kube-proxy service-endpoints-check ip daddr . meta l4proto . th dport vmap @no-endpoint-services
add rule ip kube-proxy nodeport-endpoints-check ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports
add rule ip kube-proxy firewall-check ip daddr . meta l4proto . th dport vmap @firewall-ips
add rule ip kube-proxy services ip daddr . meta l4proto . th dport vmap @service-ips
add rule ip kube-proxy services ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
"""


class Nftables(Rules):
    name, title = "nftables", "nftables"
    command = ("nft", "-f", "-")

    def everything(self):
        lines = [line for service in self.load.services for line in rules(service, self.is_whole(service))]
        return BASE + "".join(lines)

    def prepare(self, old, new):
        come = [address for address in new.endpoints if address not in old.endpoints]
        gone = [address for address in old.endpoints if address not in new.endpoints]
        lines = [line for address in come for line in endpoint(new, address)]
        lines += [f"flush chain {TABLE} {service_chain(new)}\n", *service_rules(new)]
        for address in gone:
            lines += [
                f"{verb} chain {TABLE} {endpoint_chain(old, address)}\n" for verb in ("flush", "delete")
            ]
        return "".join(lines)


def port_name(service):
    return f"{workload.NAMESPACE}/{service.name}/{PROTOCOL}/"


def service_chain(service):
    return f"service-{digest(port_name(service), length=HASH)}-{port_name(service)}"


def endpoint_chain(service, address):
    target = f"{address}/{workload.TARGET_PORT}"
    return f"endpoint-{digest(port_name(service), target, length=HASH)}-{port_name(service)}__{target}"


def rules(service, whole):
    chain = service_chain(service) if whole else HOLLOW
    if whole:
        for address in service.endpoints:
            yield from endpoint(service, address)
        yield f"add chain {TABLE} {chain}\n"
        yield from service_rules(service)
    yield f"add element {TABLE} cluster-ips {{ {service.vip} }}\n"
    yield f"add element {TABLE} service-ips {{ {service.vip} . {PROTOCOL} . {workload.PORT} : goto {chain} }}\n"


def endpoint(service, address):
    chain = endpoint_chain(service, address)
    yield f"add chain {TABLE} {chain}\n"
    yield f"add rule {TABLE} {chain} ip saddr {address} jump mark-for-masquerade\n"
    yield f"add rule {TABLE} {chain} meta l4proto {PROTOCOL} dnat to {address}:{workload.TARGET_PORT}\n"


def service_rules(service):
    head = f"add rule {TABLE} {service_chain(service)}"
    match = f"ip daddr {service.vip} {PROTOCOL} dport {workload.PORT}"
    yield f"{head} {match} ip saddr != {workload.POD_RANGE} jump mark-for-masquerade\n"
    gotos = ", ".join(
        f"{number} : goto {endpoint_chain(service, address)}"
        for number, address in enumerate(service.endpoints)
    )
    yield f"{head} numgen random mod {len(service.endpoints)} vmap {{ {gotos} }}\n"
