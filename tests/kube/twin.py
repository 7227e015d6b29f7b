"""A node whose Services are implemented by the real kube-proxy."""

import addresses as at
from worlds import World

MODES = ("nftables", "iptables")


class Twin(World):
    """Of kind `nftables` or `iptables`, the modes of kube-proxy."""

    def start_services(self):
        command = [self.control_plane.binaries / "kube-proxy", f"--kubeconfig={self.control_plane.kubeconfig}",
                   f"--hostname-override={at.NODE_NAME}", f"--proxy-mode={self.kind}",
                   f"--cluster-cidr={','.join(at.POD_NETWORKS)}",
                   # Of the host: not ours to change.
                   "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0",
                   "--conntrack-tcp-timeout-close-wait=0"]
        self.start_process("kube-proxy", self.namespaces["node"].around([str(word) for word in command]))
