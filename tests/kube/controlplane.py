"""A real control plane in a namespace of its own: etcd, kube-apiserver, kube-controller-manager."""

import base64
import secrets

from kube.addresses import API_PORT, CONTROL, CONTROL_LENGTH, NODE, NODE_NAME, POD_NETWORKS, SERVICE_NETWORKS, ZONE
from kube.api import Api
from testkit import wait
from testkit.commands import run
from testkit.namespaces import Namespace
from testkit.paths import program
from testkit.process import Process

BRIDGE = "br0"
ETCD = "http://127.0.0.1:2379"
START_SECONDS = 300
# Only the controllers that the tests need: slices are made from Pods, and namespaces can be used at once.
CONTROLLERS = ("endpointslice-controller", "serviceaccount-controller", "namespace-controller")


class ControlPlane:
    controllers = CONTROLLERS

    def __init__(self, directory, binaries, env, name="cp"):
        """`name`: the name of its network namespace; a run may have several control planes."""
        self.name = name
        self.directory = directory
        self.binaries = binaries
        self.env = env
        self.namespace = None
        self.processes = []
        self.keys = Keys(directory / "pki")
        self.kubeconfig = directory / "kubeconfig"
        self.kubeconfig.write_text(self.keys.kubeconfig())

    def start(self):
        self.namespace = Namespace(self.name)
        self.namespace.ip(f"link add {BRIDGE} type bridge")
        self.namespace.ip(f"addr add {CONTROL}/{CONTROL_LENGTH} dev {BRIDGE}")
        self.namespace.ip(f"link set {BRIDGE} up")
        self.api = Api(self.namespace, self.keys.authority, self.keys.token)
        self.start_process("etcd", [program("etcd"), "--data-dir", self.directory / "etcd",
                                    "--listen-client-urls", ETCD, "--advertise-client-urls", ETCD,
                                    "--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync"])
        self.start_api_server()
        self.start_process("kube-controller-manager", self.controller_manager())
        self.make_node()

    def start_process(self, role, command):
        command = self.namespace.around(["nice", "-n", "5", *command])
        process = Process(role, command, self.directory / f"{role}.log", self.env)
        self.processes.append(process)
        return process

    def start_api_server(self):
        """The control plane answers when this returns."""
        self.api_server = self.start_process("kube-apiserver", self.api_server_command())
        wait.until(self.api.is_ready, "the API server to be ready", START_SECONDS, self.api_server.must_run)

    def kill_api_server(self):
        self.api_server.destroy()
        self.processes.remove(self.api_server)

    def api_server_command(self):
        keys = self.keys
        return [self.binaries / "kube-apiserver", f"--etcd-servers={ETCD}", f"--bind-address={CONTROL}",
                f"--secure-port={API_PORT}", f"--advertise-address={CONTROL}",
                f"--tls-cert-file={keys.certificate}", f"--tls-private-key-file={keys.key}",
                f"--token-auth-file={keys.tokens}", f"--service-cluster-ip-range={','.join(SERVICE_NETWORKS)}",
                "--authorization-mode=RBAC", "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={keys.accounts}", f"--service-account-signing-key-file={keys.accounts}",
                *self.api_server_settings()]

    def api_server_settings(self):
        """Pods are created unchanged, without a service account, and bound to their node at once."""
        return ["--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"]

    def controller_manager(self):
        return [self.binaries / "kube-controller-manager", f"--kubeconfig={self.kubeconfig}", "--leader-elect=false",
                f"--controllers={','.join(self.controllers)}", "--kube-api-qps=2000", "--kube-api-burst=4000",
                "--bind-address=127.0.0.1", "--use-service-account-credentials=false",
                f"--cluster-cidr={','.join(POD_NETWORKS)}", *self.controller_settings()]

    def controller_settings(self):
        return []

    def make_node(self):
        """All worlds use this node object."""
        labels = {"kubernetes.io/hostname": NODE_NAME, "topology.kubernetes.io/zone": ZONE}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE_NAME, "labels": labels}, "spec": {}}
        self.api.create(node)
        addresses = [{"type": "InternalIP", "address": NODE[family]} for family in NODE]
        self.api.set_status(node, {"addresses": addresses})

    def stop(self):
        for process in reversed(self.processes):
            process.destroy()
        if self.namespace is not None:
            self.namespace.remove()


class Keys:
    """Keys and certificates of the control plane and its clients."""

    def __init__(self, directory):
        directory.mkdir()
        self.authority, authority_key = directory / "ca.crt", directory / "ca.key"
        self.certificate, self.key = directory / "server.crt", directory / "server.key"
        self.accounts = directory / "accounts.key"
        self.tokens = directory / "tokens.csv"
        self.token = secrets.token_hex(16)
        self.tokens.write_text(f"{self.token},admin,1,system:masters\n")
        elliptic = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        run("openssl", "req", "-x509", *elliptic, "-keyout", authority_key, "-out", self.authority,
            "-days", "2", "-subj", "/CN=test-ca")
        run("openssl", "req", "-x509", *elliptic, "-keyout", self.key, "-out", self.certificate, "-days", "2",
            "-subj", "/CN=kube-apiserver", "-CA", self.authority, "-CAkey", authority_key,
            "-addext", f"subjectAltName=IP:{CONTROL}", "-addext", "basicConstraints=critical,CA:FALSE")
        run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.accounts)

    def kubeconfig(self):
        authority = base64.b64encode(self.authority.read_bytes()).decode()
        return f"""\
apiVersion: v1
kind: Config
clusters:
- name: test
  cluster:
    server: https://{CONTROL}:{API_PORT}
    certificate-authority-data: {authority}
users:
- name: admin
  user:
    token: {self.token}
contexts:
- name: test
  context:
    cluster: test
    user: admin
current-context: test
"""


