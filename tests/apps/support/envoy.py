"""Envoy as a sidecar in front of a service: an HTTP router listener and a tcp_proxy listener."""

import json

from testkit import net, paths

FILTERS = "type.googleapis.com/envoy.extensions.filters.network"


class Envoy:
    """A running Envoy with two worker threads."""

    def __init__(self, case, service_port):
        self.http_port, self.tcp_port = net.free_port(), net.free_port()
        config = case.tmp / "envoy.json"
        config.write_text(json.dumps(configuration(self.http_port, self.tcp_port, service_port), indent=1))
        self.process = case.start("envoy", [paths.envoy(), "-c", config, "--concurrency", "2",
                                            "--disable-hot-restart", "--log-level", "warn"])
        for port in (self.http_port, self.tcp_port):
            net.wait_port(port, self.process, 30)


def configuration(http_port, tcp_port, service_port):
    return {"static_resources": {
        "listeners": [listener("http", http_port, http_router()), listener("tcp", tcp_port, tcp_proxy())],
        "clusters": [{
            "name": "service", "type": "STATIC", "connect_timeout": "5s",
            "load_assignment": {"cluster_name": "service", "endpoints": [{"lb_endpoints": [
                {"endpoint": {"address": address(service_port)}}]}]},
        }],
    }}


def address(port):
    return {"socket_address": {"address": net.LOOPBACK, "port_value": port}}


def listener(name, port, network_filter):
    return {"name": name, "address": address(port), "filter_chains": [{"filters": [network_filter]}]}


def tcp_proxy():
    return {"name": "tcp", "typed_config": {
        "@type": f"{FILTERS}.tcp_proxy.v3.TcpProxy", "stat_prefix": "tcp", "cluster": "service"}}


def http_router():
    return {"name": "http", "typed_config": {
        "@type": f"{FILTERS}.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "http",
        "route_config": {"virtual_hosts": [{
            "name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "service"}}]}]},
        "http_filters": [{"name": "router", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
    }}
