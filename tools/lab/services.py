"""nginx as the service, Envoy as its sidecar, redis: each with a configuration of its own on loopback."""

import hashlib
import http.client
import json
import os
import socket

from . import settings

PATHS = ("direct", "tcp_proxy", "http")
#: Where clients are sent, and what the answer must be.
SMALL, FILE = "/", "/file.bin"

NGINX = """\
daemon off;
{user}
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    # Sidecars keep their connections; the default of 1000 requests would make both sides reconnect all the time.
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
    client_body_temp_path {folder};
    proxy_temp_path {folder};
    fastcgi_temp_path {folder};
    uwsgi_temp_path {folder};
    scgi_temp_path {folder};
    default_type application/octet-stream;
    server {{
        listen 127.0.0.1:{port};
        root {folder};
        location = / {{ default_type application/json; return 200 '{body}'; }}
    }}
}}
"""


def file_body():
    """The static file's content: the same on every machine, and no block like another."""
    blocks = (hashlib.sha256(str(n).encode()).digest() for n in range(settings.FILE_BYTES // 32 + 1))
    return b"".join(blocks)[: settings.FILE_BYTES]


#: What each address must return, byte for byte.
BODIES = {SMALL: settings.SMALL_BODY, FILE: file_body()}


class Chain:
    """nginx, with Envoy before it when asked for, all started by one variant."""

    def __init__(self, lab, places, starter, variant, with_envoy=True):
        self._lab, self._places, self._starter = lab, places, starter
        self.variant = variant
        self.report = starter.report()
        self.processes = []
        self.ports = {"direct": lab.port()}
        self._start_nginx()
        if with_envoy:
            self.ports |= {"tcp_proxy": lab.port(), "http": lab.port()}
            self._start_envoy()

    def url(self, path, place=SMALL):
        return f"http://127.0.0.1:{self.ports[path]}{place}"

    def pids(self):
        return [popen.pid for popen in self.processes]

    def _start_nginx(self):
        name = f"nginx-{self.variant.name}"
        folder = self._lab.folder / name
        folder.mkdir(exist_ok=True)
        (folder / FILE.strip("/")).write_bytes(BODIES[FILE])
        # Two users may not share memory, so the workers stay root when we are.
        user = "user root;" if os.geteuid() == 0 else ""
        body = settings.SMALL_BODY.decode().replace("\n", "\\n")
        text = NGINX.format(folder=folder, port=self.ports["direct"], user=user, body=body)
        config = folder / "nginx.conf"
        config.write_text(text)
        argv = [self._places.tool("nginx"), "-p", folder, "-e", "stderr", "-c", config]
        self._run(name, argv, ["direct"])

    def _start_envoy(self):
        name = f"envoy-{self.variant.name}"
        config = self._lab.folder / f"{name}.json"
        config.write_text(json.dumps(envoy_config(self.ports), indent=1))
        argv = [self._places.envoy(), "-c", config, "--concurrency", "1"]
        argv += ["--disable-hot-restart", "--log-level", "error"]
        self._run(name, argv, ["tcp_proxy", "http"])

    def _run(self, name, argv, paths):
        popen = self._starter.start(self.variant, name, argv, self.report)
        self.processes.append(popen)
        for path in paths:
            self._lab.wait_ready(popen, lambda path=path: answers(self.ports[path]))


def envoy_config(ports):
    """An HTTP router and a TCP proxy in front of the same service; no admin interface."""
    types = "type.googleapis.com/envoy.extensions.filters"
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "http",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "service"}}],
                }
            ]
        },
        "http_filters": [
            {"name": "router", "typed_config": {"@type": f"{types}.http.router.v3.Router"}},
        ],
    }
    proxy = {
        "@type": f"{types}.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": "tcp",
        "cluster": "service",
    }
    return {
        "static_resources": {
            "listeners": [
                _listener("http", ports["http"], manager),
                _listener("tcp", ports["tcp_proxy"], proxy),
            ],
            "clusters": [_cluster(ports["direct"])],
        }
    }


def _listener(name, port, config):
    chain = {"filters": [{"name": name, "typed_config": config}]}
    return {"name": name, "address": _address(port), "filter_chains": [chain]}


def _cluster(port):
    endpoint = {"endpoint": {"address": _address(port)}}
    return {
        "name": "service",
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": "service", "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def answers(port):
    """Whether the small request is answered with the right body."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        link.request("GET", SMALL)
        answer = link.getresponse()
        return answer.status == 200 and answer.read() == BODIES[SMALL]
    except http.client.HTTPException:
        return False
    finally:
        link.close()


def start_redis(lab, places, starter, variant):
    """A redis without persistence; its port."""
    port, name = lab.port(), f"redis-{variant.name}"
    folder = lab.folder / name
    folder.mkdir(exist_ok=True)
    argv = [places.tool("redis-server"), "--bind", "127.0.0.1", "--port", port, "--dir", folder]
    argv += ["--save", "", "--appendonly", "no", "--daemonize", "no"]
    popen = starter.start(variant, name, argv)
    lab.wait_ready(popen, lambda: _redis_answers(port))
    return port


def _redis_answers(port):
    with socket.create_connection(("127.0.0.1", port), timeout=2) as link:
        link.sendall(b"PING\r\n")
        return link.recv(16).startswith(b"+PONG")
