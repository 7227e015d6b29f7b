"""A node whose Services are implemented by the real kube-proxy."""

from kube import addresses as at
from kube.worlds import World
from testkit.commands import run
from testkit.paths import program

MODES = ("nftables", "iptables")
STOP_SECONDS = 30


# iptables mode uses iptables-legacy. With Debian's default, which translates to nftables, loading the first 50,000
# endpoints takes minutes.
LEGACY = "xtables-legacy-multi"
COMMANDS = [f"{name}{action}" for name in ("iptables", "ip6tables") for action in ("", "-save", "-restore")]


class KubeProxy(World):
    """Of kind `nftables` or `iptables`, the modes of kube-proxy."""

    def build(self):
        super().build()
        legacy = self.directory / "legacy"
        legacy.mkdir()
        for name in COMMANDS:
            (legacy / name).symlink_to(program(LEGACY))
        self.env = {**self.env, "PATH": f"{legacy}:{self.env['PATH']}"}

    def start_services(self):
        self.services = self.start_process("kube-proxy", self.kube_proxy(
            f"--kubeconfig={self.control_plane.kubeconfig}", f"--hostname-override={at.NODE_NAME}",
            f"--cluster-cidr={','.join(at.POD_NETWORKS)}",
            # These are settings of the host, which the tests must not change.
            "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0"))

    def kube_proxy(self, *options):
        program = str(self.control_plane.binaries / "kube-proxy")
        return self.namespaces["node"].around([program, f"--proxy-mode={self.kind}", *options])

    def end_services(self):
        """kube-proxy ends; its rules stay."""
        self.services.stop(STOP_SECONDS)
        self.processes.remove(self.services)

    def clear_services(self):
        """Removes all rules."""
        run(*self.kube_proxy("--cleanup"), env=self.env)
