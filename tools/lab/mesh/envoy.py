"""The configuration of the sidecars, as far as Istio's has to do with the way of a request.

    client's   15001 virtualOutbound: hands over to the listener of the original destination's port, or passes through
               service port: HTTP, a route with a timeout, mTLS to the pod of the service
    server's   15006 virtualInbound: mTLS of who has a certificate, HTTP, authorization, a route to the application
"""

from .rules import OWN
from .settings import CAPTURE, PORT, identity

TYPES = "type.googleapis.com/envoy.extensions"
#: Stat prefixes, and names of clusters: what the proofs ask for.
OUTBOUND, INBOUND = "outbound", "inbound"
VIRTUAL_INBOUND = "virtual_inbound"
CONNECT_TIMEOUT = "5s"


def client(server, papers, admin, timeout):
    """The sidecar beside the load generator; `server` is the address of the other pod."""
    passing = {"name": "passthrough", "type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED"}
    listeners = [
        {
            "name": "virtualOutbound",
            "stat_prefix": "virtual_outbound",
            "address": address("0.0.0.0", CAPTURE.outbound),
            "use_original_dst": True,
            "filter_chains": [{"filters": [tcp_proxy("passthrough")]}],
        },
        {
            "name": f"0.0.0.0_{PORT}",
            "stat_prefix": OUTBOUND,
            "address": address("0.0.0.0", PORT),
            "bind_to_port": False,
            "filter_chains": [{"filters": [http(OUTBOUND, timeout, [])]}],
        },
    ]
    service = {
        "name": OUTBOUND,
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": OUTBOUND,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(server, PORT)}}]}],
        },
        "transport_socket": tls("Upstream", {"common_tls_context": common(papers, identity("server"))}),
    }
    return whole(admin, listeners, [service, passing])


def server(papers, admin, timeout):
    """The sidecar beside the service."""
    demands = {"common_tls_context": common(papers, None), "require_client_certificate": True}
    chain = {
        "filter_chain_match": {"destination_port": PORT, "transport_protocol": "tls"},
        "transport_socket": tls("Downstream", demands),
        "filters": [http(INBOUND, timeout, [authorization(identity("client"))])],
    }
    listener = {
        "name": "virtualInbound",
        "stat_prefix": VIRTUAL_INBOUND,
        "address": address("0.0.0.0", CAPTURE.inbound),
        "listener_filters": [
            listener_filter("original_dst", "OriginalDst"),
            listener_filter("tls_inspector", "TlsInspector"),
        ],
        "filter_chains": [chain],
    }
    application = {
        "name": INBOUND,
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "upstream_bind_config": {"source_address": {"address": OWN, "port_value": 0}},
    }
    return whole(admin, [listener], [application])


def whole(admin, listeners, clusters):
    for cluster in clusters:
        cluster["connect_timeout"] = CONNECT_TIMEOUT
    return {
        # A path, so that asking needs no way into the pod.
        "admin": {"address": {"pipe": {"path": str(admin)}}},
        "static_resources": {"listeners": listeners, "clusters": clusters},
    }


def http(name, timeout, filters):
    """Requests go to the cluster of the same name."""
    route = {"match": {"prefix": "/"}, "route": {"cluster": name, "timeout": f"{timeout}s"}}
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


def tcp_proxy(cluster):
    config = {
        "@type": f"{TYPES}.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": cluster,
        "cluster": cluster,
    }
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
