"""`helm uninstall`, while there is all that it has to take out: captured pods, pods under policy, pods with rings, and Services without
a kube-proxy."""

import errno
import json
from pathlib import Path

from cluster import attached, external, shop
from cluster.cluster import DAEMONSET
from cluster.goal import Requests, enrol_web, unlabel
from cluster.witness import CAPTURED, GUARDED, Witness
from testkit import wait
from testkit.failure import Failure

PLACE = "uninstall"
LIBRARY, BPFFS = "/usr/lib/sidestep", "/sys/fs/bpf"
CLEAN_SECONDS, FREE_SECONDS = 30, 60
# What some node must have before, else the checks after it would prove nothing.
MUST_BE_SEEN = ("files", "configuration", "library", "programs of cgroups", "programs of devices", "programs of pods", "tables of nftables")


def uninstall(cluster, checks):
    """`helm uninstall` under requests by ring, with captured pods, policies, and no kube-proxy: nothing of Sidestep is left on a node."""
    cluster.helm_upgrade("agent.networkPolicies=true", *external.VALUES)
    enrol_web(cluster)
    witness = Witness(cluster, PLACE)
    pods = witness.add()
    witness.await_running(pods)
    witness.check(checks, pods, "before the removal")
    there = {kind for node in cluster.nodes for kind in left_on(node, set())}
    checks.check(there >= set(MUST_BE_SEEN), f"before the removal there is only {there}")
    running = [Requests(cluster, node) for node in cluster.nodes]
    cluster.helm("uninstall", "sidestep", "--wait", "--timeout", "180s")
    for requests in running:
        seen = requests.stop()
        checks.check(seen["requests"] > 0 and not seen["failures"], f"requests during the removal: {seen}")
    check_objects(cluster, checks)
    check_nodes(cluster, checks)
    check_free(checks, witness, pods)
    cluster.api.delete(shop.deployment())
    witness.remove(pods)


def check_objects(cluster, checks):
    checks.check(cluster.api.get(DAEMONSET) is None, "the DaemonSet is still there")
    roles = cluster.api.ask("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles?labelSelector=helm.sh/chart")
    checks.check(not roles["items"], f"roles are left: {roles['items']}")


def check_nodes(cluster, checks):
    """Pods that were started with the library go on, and keep their version of it; nothing else is left."""
    users = [users_of_library(node) for node in cluster.nodes]
    checks.check(any(users), "the pods with the library have ended")
    for node, used in zip(cluster.nodes, users):
        try:
            wait.until(lambda node=node, used=used: not left_on(node, used), f"{node.name} to be clean", CLEAN_SECONDS)
        except Failure:
            checks.check(False, f"{node.name} is not clean: {left_on(node, used)}")


def check_free(checks, witness, pods):
    """Pods that were captured, or under policy, reach whom they call, as without Sidestep."""
    for pod in pods:
        kind = pod["metadata"]["labels"]["app"]
        if kind in (GUARDED, CAPTURED):
            wait.until(lambda pod=pod: witness.outcomes(pod).get("direct"), f"calls of the {kind} pod to arrive after the removal",
                       FREE_SECONDS)
            checks.check(witness.arrived()[kind] > 0, f"after the removal no call of the {kind} pod has arrived")


# --- what there is of Sidestep on a node ----------------------------------------------------------


def left_on(node, used):
    """By its kind. `used`: inodes of the library that may stay, since processes have it."""
    found = {
        "files": files(node), "configuration": [text for text in [node.network_file().read_text()] if "sidestep" in text],
        "library": [path for path, inode in versions(node) if inode not in used], "mounts": mounts(node),
        "programs of cgroups": of_cgroups(node), "programs of devices": attached.to_devices(node.machine.namespace),
        "programs of pods": of_pods(node), "tables of nftables": tables(node)}
    return {kind: what for kind, what in found.items() if what}


def files(node):
    """Directories do not count but for that of the pins, which the agent itself makes in the BPF file system."""
    machine = node.machine
    found = [str(path) for place in (f"{BPFFS}/sidestep", "/run/sidestep", "/run/sidestep-operator")
             for path in machine.path(place).glob("**/*") if not path.is_dir()]
    found += [str(path) for path in machine.path(BPFFS).glob("sidestep*")]
    return found + [str(path) for path in machine.path("/opt/cni/bin").glob("*sidestep*")]


def versions(node):
    """Files of the library with their inodes, and the link to the current version, which nobody has."""
    paths = [path for path in node.machine.path(LIBRARY).glob("**/*") if path.is_symlink() or not path.is_dir()]
    return [(str(path), str(path.lstat().st_ino)) for path in paths]


def users_of_library(node):
    """Inodes of the library that processes on the node have mapped."""
    words = "cat /proc/[0-9]*/maps 2>/dev/null | awk '/libsidestep/ {print $5}' | sort -u"
    return set(node.machine.run("sh", "-c", words).split())


def mounts(node):
    lines = Path(f"/proc/{node.machine.first}/mountinfo").read_text().splitlines()
    found = [line for line in lines if "/kubelet/pods" in line and "sidestep" in line]
    # The machine has one BPF file system itself.
    return found + [line for line in lines if " - bpf " in line and line.split()[4] != BPFFS]


def of_cgroups(node):
    trees = json.loads(node.machine.run("bpftool", "--json", "cgroup", "tree", "/sys/fs/cgroup/unified") or "[]")
    return [f"{program['attach_type']} {program.get('name')}" for cgroup in trees for program in cgroup.get("programs", [])
            if program["attach_type"] not in ("cgroup_device", "device")]


def of_pods(node):
    """Network namespaces in which a program looks up sockets: those of captured pods, and of pods under policy."""
    found = []
    for path in node.machine.path("/run/netns").iterdir():
        try:
            if attached.to_namespace(path):
                found.append(path.name)
        except OSError as error:
            # It has gone meanwhile, or is not mounted any more.
            if error.errno not in (errno.ENOENT, errno.EINVAL):
                raise
    return found


def tables(node):
    return [line for line in node.machine.run("nft", "list", "tables").splitlines() if "sidestep" in line]


CASES = (unlabel, uninstall)
