"""The real istiod, next to the API server: it knows the whole mesh before the first proxy connects."""

import http.client
import json

from kube import build
from kube.addresses import CONTROL
from testkit import wait

from . import things
from .places import DOMAIN, NAMESPACE, PLACES

PLAIN_PORT, SECURE_PORT = 15010, 15012
HTTP_PORT, MONITORING_PORT = 8090, 15014
START_SECONDS = 120
SLICE_SECONDS = 60
NAME = "istiod.istio-system.svc"
DISCOVERY = f"{CONTROL}:{SECURE_PORT}"
# Audience of the tokens with which proxies request certificates.
AUDIENCE = "istio-ca"
TOKEN_SECONDS = 24 * 3600
ROOT = "istio-ca-root-cert"
# The upstream release of Envoy does not have Istio's own filters.
ENVIRONMENT = {"PILOT_ENABLE_METADATA_EXCHANGE": "false", "PILOT_ENABLE_ALPN_FILTER": "false",
               "PILOT_ENABLE_GATEWAY_API": "false", "ENABLE_CA_SERVER": "true", "PILOT_CERT_PROVIDER": "istiod",
               "POD_NAME": "istiod", "POD_NAMESPACE": things.ISTIO_SYSTEM, "REVISION": "default",
               "CLUSTER_ID": "Kubernetes", "SERVICE_ACCOUNT": "istiod", "ISTIOD_ADDR": f"{NAME}:{SECURE_PORT}"}
MESH = {"enableAutoMtls": True, "defaultConfig": {"discoveryAddress": f"{CONTROL}:{PLAIN_PORT}"},
        "outboundTrafficPolicy": {"mode": "ALLOW_ANY"}}


class Istiod:
    def __init__(self, control_plane):
        self.control_plane = control_plane
        self.api = control_plane.api
        self.root = None

    def start(self):
        self.describe_mesh()
        config = self.control_plane.directory / "mesh.yaml"
        config.write_text(json.dumps(MESH))
        environment = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
        process = self.control_plane.start_process("istiod", [
            "env", *environment, self.control_plane.binaries / "pilot-discovery", "discovery",
            f"--kubeconfig={self.control_plane.kubeconfig}", f"--meshConfig={config}", "--networksConfig=/dev/null",
            f"--domain={DOMAIN}", f"--grpcAddr={CONTROL}:{PLAIN_PORT}", f"--secureGRPCAddr={CONTROL}:{SECURE_PORT}",
            "--httpsAddr=", f"--httpAddr=127.0.0.1:{HTTP_PORT}", f"--monitoringAddr=127.0.0.1:{MONITORING_PORT}",
            "--ctrlz_port=0"])
        wait.until(self.is_ready, "istiod to be ready", START_SECONDS, process.must_run)
        self.root = wait.until(self.find_root, "istiod's own certificate", START_SECONDS, process.must_run)

    def describe_mesh(self):
        kinds = [text for text in build.ISTIO.kinds.read_text().split("\n---\n") if "\nkind: " in text]
        self.api.each(self.api.create_kind, kinds)
        wait.until(self.are_kinds_served, "the API server to serve Istio's kinds of objects", START_SECONDS)
        for thing in things.all_things():
            self.api.create(thing)
        for place in PLACES.values():
            self.api.set_status(things.pod(place), things.running(place))
        wait.until(self.are_endpoints_known, "EndpointSlices of the pods", SLICE_SECONDS)

    def are_kinds_served(self):
        return all(self.api.is_served(kind, NAMESPACE) for kind in ("PeerAuthentication", "AuthorizationPolicy"))

    def are_endpoints_known(self):
        pieces = self.api.list("EndpointSlice", NAMESPACE)
        seen = {address for piece in pieces for endpoint in piece.get("endpoints") or ()
                if endpoint["conditions"].get("ready") for address in endpoint["addresses"]}
        served = {spec["selector"]["app"] for spec in (service["spec"] for service in things.services())}
        return seen == {place.address for place in PLACES.values() if place.app in served}

    def is_ready(self):
        return self.control_plane.namespace.call(lambda: answers("127.0.0.1", HTTP_PORT, "/ready"))

    def find_root(self):
        """istiod's root certificate, which a container would have in its file system."""
        found = [thing for thing in self.api.list("ConfigMap", NAMESPACE) if thing["metadata"]["name"] == ROOT]
        return found and found[0]["data"]["root-cert.pem"]

    def token(self, account):
        """The token with which a pod's proxy requests its certificate."""
        spec = {"audiences": [AUDIENCE], "expirationSeconds": TOKEN_SECONDS}
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        return self.api.ask("POST", path, {"spec": spec})["status"]["token"]


def answers(host, port, path):
    """Whether a server answers there with status 200."""
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
