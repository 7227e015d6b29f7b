"""The configuration of the sidecars, as far as Istio's has to do with the way of a request.

    client's   15001 virtualOutbound: hands over to the listener of the original destination's port, or passes through
               service ports: HTTP, a route with a timeout, mTLS to the pod of the service
    server's   15006 virtualInbound: mTLS of who has a certificate, HTTP, authorization, a route to the application
"""

from .rules import OWN
from .settings import CAPTURE, FRESH, PORTS, identity

TYPES = "type.googleapis.com/envoy.extensions"
#: Stat prefixes, and names of clusters: what the proofs ask for.
OUTBOUND, INBOUND = "outbound", "inbound"
VIRTUAL_INBOUND = "virtual_inbound"
CONNECT_TIMEOUT = "5s"


def client(server, papers, admin, plan):
    """The sidecar beside the load generator; `server` is the address of the other pod, or of the service."""
    passing = {"name": "passthrough", "type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED"}
    listeners = [
        {
            "name": "virtualOutbound",
            "stat_prefix": "virtual_outbound",
            "address": address("0.0.0.0", CAPTURE.outbound),
            "use_original_dst": True,
            "filter_chains": [{"filters": [tcp_proxy("passthrough")]}],
        },
        *(outbound(port, plan) for port in PORTS),
    ]
    return whole(admin, listeners, [passing, *(service(port, server, papers, plan) for port in PORTS)])


def outbound(port, plan):
    return {
        "name": f"0.0.0.0_{port}",
        "stat_prefix": OUTBOUND,
        "address": address("0.0.0.0", port),
        "bind_to_port": False,
        "filter_chains": [{"filters": [http(OUTBOUND, port, plan, [])]}],
    }


def service(port, host, papers, plan):
    name = cluster(OUTBOUND, port)
    return {
        "name": name,
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(host, port)}}]}],
        },
        "transport_socket": tls("Upstream", {"common_tls_context": common(papers, identity("server"))}),
        **carries(port, plan),
    }


def server(papers, admin, plan):
    """The sidecar beside the service."""
    demands = {"common_tls_context": common(papers, None), "require_client_certificate": True}
    chains = [
        {
            "filter_chain_match": {"destination_port": port, "transport_protocol": "tls"},
            "transport_socket": tls("Downstream", demands),
            "filters": [http(INBOUND, port, plan, [authorization(identity("client"))])],
        }
        for port in PORTS
    ]
    listener = {
        "name": "virtualInbound",
        "stat_prefix": VIRTUAL_INBOUND,
        "address": address("0.0.0.0", CAPTURE.inbound),
        "listener_filters": [
            listener_filter("original_dst", "OriginalDst"),
            listener_filter("tls_inspector", "TlsInspector"),
        ],
        "filter_chains": chains,
    }
    return whole(admin, [listener], [application(port, plan) for port in PORTS])


def application(port, plan):
    return {
        "name": cluster(INBOUND, port),
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "upstream_bind_config": {"source_address": {"address": OWN, "port_value": 0}},
        **carries(port, plan),
    }


def cluster(name, port):
    return f"{name}_{port}"


def carries(port, plan):
    """How many requests a connection to a cluster carries."""
    most = 1 if port == FRESH else plan.requests
    limit = {"max_requests_per_connection": most} if most else {}
    options = {
        "@type": f"{TYPES}.upstreams.http.v3.HttpProtocolOptions",
        "common_http_protocol_options": limit,
        "explicit_http_config": {"http_protocol_options": {}},
    }
    return {"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options}}


def whole(admin, listeners, clusters):
    for each in clusters:
        each["connect_timeout"] = CONNECT_TIMEOUT
    return {
        # A path, so that asking needs no way into the pod.
        "admin": {"address": {"pipe": {"path": str(admin)}}},
        "static_resources": {"listeners": listeners, "clusters": clusters},
    }


def http(name, port, plan, filters):
    """Requests go to the cluster of that name and port."""
    to = {"cluster": cluster(name, port), "timeout": f"{plan.route_timeout}s"}
    route = {"match": {"prefix": "/"}, "route": to}
    router = {"name": "router", "typed_config": {"@type": f"{TYPES}.filters.http.router.v3.Router"}}
    config = {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [*filters, router],
    }
    if name == INBOUND:
        config["forward_client_cert_details"] = "APPEND_FORWARD"
    return {"name": "http", "typed_config": config}


def authorization(principal):
    """Who may come: nobody but that one."""
    policy = {
        "permissions": [{"any": True}],
        "principals": [{"authenticated": {"principal_name": {"exact": principal}}}],
    }
    config = {
        "@type": f"{TYPES}.filters.http.rbac.v3.RBAC",
        "rules": {"action": "ALLOW", "policies": {"client": policy}},
    }
    return {"name": "authorization", "typed_config": config}


def tcp_proxy(name):
    config = {"@type": f"{TYPES}.filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": name, "cluster": name}
    return {"name": "tcp", "typed_config": config}


def listener_filter(name, kind):
    config = {"@type": f"{TYPES}.filters.listener.{name}.v3.{kind}"}
    return {"name": name, "typed_config": config}


def common(papers, peer):
    """Own papers, and whose are taken: those of `peer`, or all that the authority has signed."""
    trusted = {"trusted_ca": {"filename": str(papers.authority)}}
    if peer:
        trusted["match_typed_subject_alt_names"] = [{"san_type": "URI", "matcher": {"exact": peer}}]
    own = {
        "certificate_chain": {"filename": str(papers.certificate)},
        "private_key": {"filename": str(papers.key)},
    }
    return {"tls_certificates": [own], "validation_context": trusted, "alpn_protocols": ["http/1.1"]}


def tls(side, config):
    kind = f"{TYPES}.transport_sockets.tls.v3.{side}TlsContext"
    return {"name": "tls", "typed_config": {"@type": kind, **config}}


def address(host, port):
    return {"socket_address": {"address": host, "port_value": port}}
