"""The control plane of a cluster that runs containers: that of tests/kube, with all its controllers and the scheduler."""

from kube.addresses import SERVICE_NETWORKS
from kube.controlplane import ControlPlane


class Plane(ControlPlane):
    # A node that does not answer for a moment keeps its pods.
    controllers = ("*", "-taint-eviction-controller")

    def start(self):
        super().start()
        self.start_process("kube-scheduler", [self.binaries / "kube-scheduler", f"--kubeconfig={self.kubeconfig}",
                                              "--leader-elect=false", "--bind-address=127.0.0.1"])

    def api_server_settings(self):
        # No Service works where the API server runs: webhooks are asked at the addresses of their pods.
        return ["--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP", "--enable-aggregator-routing=true"]

    def controller_settings(self):
        """Pods ask the API server by tokens of service accounts, and know it by this authority."""
        keys = self.keys
        return [f"--service-account-private-key-file={keys.accounts}", f"--root-ca-file={keys.authority}",
                f"--service-cluster-ip-range={','.join(SERVICE_NETWORKS)}", "--allocate-node-cidrs=false",
                f"--flex-volume-plugin-dir={self.directory / 'volume-plugins'}",
                # On a busy machine nodes are late; kwok would not say again that a pod is ready.
                "--node-monitor-grace-period=600s"]

    def make_node(self):
        """Kubelets register themselves."""
