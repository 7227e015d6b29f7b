"""What a user runs in the cluster: an application with Envoy beside it in each pod, under Pod Security "restricted"."""

import hashlib
import json
from pathlib import Path

from cluster.catalog import Catalog
from cluster.images import Image
from testkit import paths
from testkit.paths import program

NAMESPACE = "shop"
LABEL = "sidestep.dev/rings"
# The sidecar is another user than the application.
APP_USER, SIDECAR_USER = 1000, 1337
APP_PORT, SIDECAR_PORT, SERVICE_PORT = 8000, 8080, 80
CACHE_PORT, QUESTIONS = 6379, 100_000
BODY = b"".join(hashlib.sha256(number.to_bytes(4, "big")).digest() for number in range(2048))

# As root that becomes another user for its workers, which is what nginx does by default; or as one user.
USERS = "user www-data; worker_processes 2;"
ONE_USER = "master_process off;"
# Each connection of a pool ends after some requests, by nginx's own default.
NGINX = f"""\
daemon off; pid /tmp/nginx.pid; error_log stderr; @USERS@
events {{ worker_connections 512; }}
http {{
    access_log off; keepalive_requests 1000; keepalive_timeout 1d;
    client_body_temp_path /tmp/a; proxy_temp_path /tmp/b; fastcgi_temp_path /tmp/c; uwsgi_temp_path /tmp/d; scgi_temp_path /tmp/e;
    server {{ listen 127.0.0.1:{APP_PORT}; root /srv; location = /status {{ stub_status; }} }}
}}
"""

ENVOY_FILE = "/etc/envoy/envoy.json"
FILTERS = "type.googleapis.com/envoy.extensions.filters"
MANAGER = {
    "@type": f"{FILTERS}.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "in",
    "stream_idle_timeout": "0s",
    "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
        {"match": {"prefix": "/"}, "route": {"cluster": "app", "timeout": "60s"}}]}]},
    "http_filters": [{"name": "router", "typed_config": {"@type": f"{FILTERS}.http.router.v3.Router"}}],
}
ENVOY = {"static_resources": {
    "listeners": [{"name": "in", "address": {"socket_address": {"address": "0.0.0.0", "port_value": SIDECAR_PORT}},
                   "filter_chains": [{"filters": [{"name": "http", "typed_config": MANAGER}]}]}],
    "clusters": [{"name": "app", "connect_timeout": "5s", "load_assignment": {"cluster_name": "app", "endpoints": [
        {"lb_endpoints": [{"endpoint": {"address": {"socket_address": {
            "address": "127.0.0.1", "port_value": APP_PORT}}}}]}]}}]}}


def images(directory):
    """Archives by their names, and the program `pause`."""
    catalog = Catalog(directory)
    app = Image("app")
    app.add_program("bin/nginx", program("nginx"))
    app.add_text("etc/nginx.conf", NGINX.replace("@USERS@", ONE_USER), mode=0o644)
    app.add_text("etc/nginx-users.conf", NGINX.replace("@USERS@", USERS), mode=0o644)
    # For callers from other hosts too, as sidecars of Istio are that connect to the pod's own address.
    app.add_text("etc/nginx-all.conf", NGINX.replace("@USERS@", ONE_USER).replace("127.0.0.1", "0.0.0.0"), mode=0o644)
    app.add_text("etc/passwd", "root:x:0:0::/:\nwww-data:x:33:33::/:\n", mode=0o644)
    app.add_text("etc/group", "root:x:0:\nwww-data:x:33:\n", mode=0o644)
    app.files["srv/body"] = (BODY, 0o644)
    sidecar = Image("sidecar")
    sidecar.add_program("bin/envoy", paths.envoy())
    archives = {}
    for image in (*catalog.all, app, sidecar):
        name = f"{image.name.partition('/')[2].partition(':')[0]}.tar"
        image.write(directory / name)
        archives[name] = directory / name
    return archives, directory / "pause"


def namespace(name, level=None, **labels):
    """`level`: of Pod Security; None: without a label."""
    if level is not None:
        labels["pod-security.kubernetes.io/enforce"] = level
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def container(name, command, user, port, **more):
    return {
        "name": name, "image": f"sidestep.test/{name}:1", "imagePullPolicy": "Never", "command": command,
        "securityContext": {"runAsUser": user, "runAsGroup": user, "runAsNonRoot": True, "readOnlyRootFilesystem": True,
                            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
                            "seccompProfile": {"type": "RuntimeDefault"}},
        "ports": [{"containerPort": port}], **more}


def deployment(name="web", namespace=NAMESPACE, replicas=1, labels=None):
    """`labels`: of the pods."""
    containers = [
        container("app", ["nginx", "-e", "stderr", "-c", "/etc/nginx.conf"], APP_USER, APP_PORT,
                  volumeMounts=[{"name": "tmp", "mountPath": "/tmp"}]),
        container("sidecar", ["envoy", "--disable-hot-restart", "--concurrency", "1", "-l", "warn", "-c", ENVOY_FILE],
                  SIDECAR_USER, SIDECAR_PORT, volumeMounts=[{"name": "envoy", "mountPath": str(Path(ENVOY_FILE).parent)}],
                  readinessProbe={"httpGet": {"path": "/status", "port": SIDECAR_PORT}, "periodSeconds": 1})]
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name, **(labels or {})}},
            "spec": {"containers": containers, "terminationGracePeriodSeconds": 2, "automountServiceAccountToken": False,
                     "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "envoy", "configMap": {"name": "envoy"}}]}}}}


def with_default_users(deployment):
    """nginx as its package has it: root, and workers that are www-data."""
    app = deployment["spec"]["template"]["spec"]["containers"][0]
    app["command"][-1] = "/etc/nginx-users.conf"
    app["securityContext"] = {"readOnlyRootFilesystem": True}
    return deployment


def idle(name, replicas, labels=None):
    """Pods that do nothing, each with one container."""
    made = deployment(name, replicas=replicas, labels=labels)
    made["spec"]["template"]["spec"] |= {"containers": [container("redis", ["pause"], APP_USER, APP_PORT)], "volumes": []}
    return made


def cache():
    """Redis as a native sidecar, and a program of musl that asks it and ends."""
    server = container("redis", ["redis-server", "--port", str(CACHE_PORT), "--bind", "0.0.0.0", "--protected-mode", "no",
                                 "--save", "", "--appendonly", "no"], APP_USER, CACHE_PORT, restartPolicy="Always",
                       startupProbe={"tcpSocket": {"port": CACHE_PORT}, "periodSeconds": 1, "failureThreshold": 60})
    asker = container("musl", ["asker", str(CACHE_PORT), str(QUESTIONS)], SIDECAR_USER, CACHE_PORT)
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "cache", "namespace": NAMESPACE, "labels": {LABEL: "enabled"}},
            "spec": {"initContainers": [server], "containers": [asker], "restartPolicy": "Never",
                     "terminationGracePeriodSeconds": 2, "automountServiceAccountToken": False}}


def objects(name=NAMESPACE, level="restricted"):
    """Of a namespace, all but the Deployment."""
    configuration = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "envoy", "namespace": name},
                     "data": {Path(ENVOY_FILE).name: json.dumps(ENVOY)}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": name},
               "spec": {"selector": {"app": "web"}, "ports": [{"port": SERVICE_PORT, "targetPort": SIDECAR_PORT}]}}
    return [namespace(name, level), configuration, service]
