"""Which files are in which Debian package."""

from collections import namedtuple

from . import manual
from .programs import LIBRARY, ROOT
from .tree import Tree

DIST = ROOT / "dist"
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/sidestep",
    "zsh": "usr/share/zsh/vendor-completions/_sidestep",
    "fish": "usr/share/fish/vendor_completions.d/sidestep.fish",
}

# units: of systemd, in the order in which maintainer scripts name them; roots: crates of the programs.
Package = namedtuple("Package", "name summary about depends suggests binaries roots")

PACKAGES = [
    Package(
        "sidestep", "local TCP connections of unchanged programs by shared memory",
        "A preload library carries the bytes of local TCP connections through rings in\n"
        "shared memory. The kernel keeps the connections, and gets the bytes back whenever\n"
        "a program needs that. This package has the command line, the library and the\n"
        "broker, which a socket unit of systemd starts when a program asks for it.",
        [], ["sidestep-agent", "sidestep-stack"], ["sidestep", "sidestepd", LIBRARY],
        ["sidestep-cli", "sidestep-broker", "sidestep-preload"]),
    Package(
        "sidestep-agent", "Kubernetes Services, sidecars and policy at the socket, by eBPF",
        "Balances connections to Kubernetes Services in connect(2), sends the connections of\n"
        "pods through their proxies without iptables, and enforces policies. The agent is\n"
        "not started by the installation: first say in /etc/sidestep/agent.toml where\n"
        "Services come from. To remove the package removes what it has loaded into the\n"
        "kernel.",
        ["sidestep"], [], ["sidestep-agent"], ["sidestep-agent"]),
    Package(
        "sidestep-stack", "TCP connections to other hosts in user space, behind rings",
        "Takes established TCP connections from the kernel, carries their bytes in user space\n"
        "(AF_XDP), and gives each back when anything irregular happens. The stack is not\n"
        "started by the installation: first name a device in /etc/sidestep/stack.env.",
        ["sidestep"], [], ["sidestep-stack"], ["sidestep-stack"]),
]


def tree_of(package, programs):
    """What is in the package, but for what every package has."""
    return {"sidestep": _sidestep, "sidestep-agent": _agent, "sidestep-stack": _stack}[package.name](programs)


def _sidestep(programs):
    tree = Tree()
    tree.program("usr/bin/sidestep", programs.stripped("sidestep"))
    tree.program("usr/bin/sidestepd", programs.stripped("sidestepd"))
    # dpkg writes a new file and renames it into place. Processes that have the old library keep it.
    tree.copy(f"usr/lib/sidestep/{LIBRARY}", programs.stripped(LIBRARY))
    tree.copy("etc/sidestep/config.toml", DIST / "config" / "config.toml")
    _units(tree, "sidestepd.service", "sidestepd.socket")
    tree.copy("usr/lib/sidestep/rings.conf", DIST / "systemd" / "rings.conf")
    manual.add(tree, "sidestep.1", "sidestepd.8")
    for shell, path in COMPLETIONS.items():
        tree.file(path, programs.completions(shell))
    for document in ("README.md", "CHANGELOG.md", "LIMITATIONS.md", "SECURITY.md"):
        tree.zipped(f"usr/share/doc/sidestep/{document}", (ROOT / document).read_bytes())
    tree.zipped("usr/share/doc/sidestep/CONFIG.md", (ROOT / "docs" / "CONFIG.md").read_bytes())
    return tree


def _agent(programs):
    tree = Tree()
    tree.program("usr/bin/sidestep-agent", programs.stripped("sidestep-agent"))
    tree.copy("etc/sidestep/agent.toml", DIST / "config" / "agent.toml")
    tree.directory("etc/sidestep/services")
    _units(tree, "sidestep-agent.service")
    manual.add(tree, "sidestep-agent.8", "sidestep-capture.8", "sidestep-splice.8")
    for document in ("services", "capture", "policy", "splice"):
        source = ROOT / "docs" / f"{document}.md"
        tree.zipped(f"usr/share/doc/sidestep-agent/{document}.md", source.read_bytes())
    return tree


def _stack(programs):
    tree = Tree()
    tree.program("usr/bin/sidestep-stack", programs.stripped("sidestep-stack"))
    tree.copy("etc/sidestep/stack.env", DIST / "config" / "stack.env")
    _units(tree, "sidestep-stack.service")
    manual.add(tree, "sidestep-stack.8")
    tree.zipped("usr/share/doc/sidestep-stack/stack.md", (ROOT / "docs" / "stack.md").read_bytes())
    return tree


def _units(tree, *names):
    for name in names:
        tree.copy(f"lib/systemd/system/{name}", DIST / "systemd" / name)
