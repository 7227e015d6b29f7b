"""The API server, by its REST interface, from the control plane's namespace."""

import http.client
import json
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor

from kube.addresses import API_PORT, CONTROL
from testkit.failure import Failure

THREADS = 8
KINDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
    "PeerAuthentication": "/apis/security.istio.io/v1/namespaces/{}/peerauthentications",
    "AuthorizationPolicy": "/apis/security.istio.io/v1/namespaces/{}/authorizationpolicies",
}


class Api:
    """One connection for each thread; each is made in the namespace and then used from here."""

    def __init__(self, namespace, authority, token):
        self.namespace = namespace
        self.tls = ssl.create_default_context(cafile=authority)
        self.token = token
        self.local = threading.local()

    def create(self, thing):
        return self.ask("POST", collection(thing), thing)

    def create_kind(self, text):
        """A CustomResourceDefinition, in YAML."""
        return self.ask("POST", KINDS, text, "application/yaml")

    def is_served(self, kind, namespace):
        """Whether the API server already knows this kind, even if there are no objects of it."""
        return self.send("GET", PATHS[kind].format(namespace), None, None)[0] == http.client.OK

    def replace(self, thing):
        return self.ask("PUT", place(thing), thing)

    def set_status(self, thing, status):
        return self.ask("PATCH", f"{place(thing)}/status", {"status": status}, "application/merge-patch+json")

    def patch(self, thing, change):
        return self.ask("PATCH", place(thing), change, "application/merge-patch+json")

    def get(self, thing):
        """As it is now; None if it is not there."""
        status, answer = self.send("GET", place(thing), None, None)
        if status == http.client.NOT_FOUND:
            return None
        if status != http.client.OK:
            raise Failure(f"GET {place(thing)}: {status}: {answer[:400].decode(errors='replace')}")
        return json.loads(answer)

    def delete(self, thing):
        return self.ask("DELETE", place(thing), {"gracePeriodSeconds": 0})

    def list(self, kind, namespace, selector=""):
        return self.ask("GET", f"{PATHS[kind].format(namespace)}?labelSelector={selector}")["items"]

    def is_ready(self):
        try:
            return self.send("GET", "/readyz", None, None)[0] == http.client.OK
        except OSError:
            return False

    def each(self, function, things):
        """The function's result for each thing; several run at once."""
        with ThreadPoolExecutor(THREADS) as threads:
            return list(threads.map(function, things))

    def ask(self, method, path, body=None, kind="application/json"):
        status, answer = self.send(method, path, body, kind)
        if status >= http.client.MULTIPLE_CHOICES:
            raise Failure(f"{method} {path}: {status}: {answer[:400].decode(errors='replace')}")
        return json.loads(answer)

    def send(self, method, path, body, kind):
        """Connects again, once, if the server has closed the connection meanwhile."""
        headers = {"Authorization": f"Bearer {self.token}"}
        if body is not None:
            body, headers["Content-Type"] = encoded(body), kind
        for is_last in (False, True):
            connection = self.connection()
            try:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                return response.status, response.read()
            except (OSError, http.client.HTTPException) as error:
                self.local.connection = None
                connection.close()
                if is_last:
                    raise OSError(f"{method} {path}: {error}") from error

    def connection(self):
        if getattr(self.local, "connection", None) is None:
            connection = http.client.HTTPSConnection(CONTROL, API_PORT, context=self.tls, timeout=30)
            plain = self.namespace.call(lambda: socket.create_connection((CONTROL, API_PORT), timeout=30))
            # Head and body are two segments; the second must not wait for a delayed acknowledgement of the first.
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sock = self.tls.wrap_socket(plain, server_hostname=CONTROL)
            self.local.connection = connection
        return self.local.connection


def collection(thing):
    return PATHS[thing["kind"]].format(thing["metadata"].get("namespace", ""))


def place(thing):
    return f"{collection(thing)}/{thing['metadata']['name']}"


def encoded(body):
    """Text is sent unchanged, everything else as JSON."""
    return (body if isinstance(body, str) else json.dumps(body)).encode()
