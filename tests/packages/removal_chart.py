"""How the chart is taken out of a cluster, and a part of it out of the nodes."""

import json
import re

from packages.chart import ALL, WEBHOOK, containers, documents, is_hook, of_kind, pod_of, rendered
from testkit.failure import check
from testkit.paths import ROOT


def removal(values):
    """The patch by which the DaemonSet takes everything out."""
    hook = next(one for one in rendered(values) if one["kind"] == "ConfigMap" and one["metadata"]["name"].endswith("-uninstall"))
    return json.loads(hook["data"]["patch.json"])


def test_uninstalling_leaves_no_pod_that_does_anything(_world):
    """The patch makes a valid DaemonSet of the one that runs."""
    daemonset = of_kind(ALL, "DaemonSet")[0]
    patch = removal(ALL)
    spec = patch["spec"]["template"]["spec"]
    check(spec.pop("$patch") == "replace", "containers that run would stay beside the new ones")
    waiting = spec["containers"][0]
    check("--address=@sidestep-removed-$(POD_UID)" in waiting["command"], "a process that holds the name keeps the chart on the node")
    uid = {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    check(waiting["env"] == [uid], f"{waiting}")
    patched = {**daemonset, "spec": {**daemonset["spec"], "template": {**daemonset["spec"]["template"], "spec": spec}}}
    documents(json.dumps(patched))
    hooks = [one["metadata"]["annotations"]["helm.sh/hook"] for one in rendered(ALL) if is_hook(one)]
    check(hooks == 5 * ["pre-delete"], f"hooks: {hooks}")


def test_switching_a_part_off_takes_it_out_of_the_nodes(_world):
    """What one release has and the next has not would stay for ever: a plugin that lets no pod start, a library without a use."""
    def commands(*values):
        return [one["command"][:2] for one in pod_of(values)["initContainers"]]
    uninstall = ["/usr/bin/sidestep-cni", "uninstall"]
    check(uninstall in commands("cni.enabled=false"), f"without the plugin: {commands('cni.enabled=false')}")
    check(uninstall not in commands("cni.enabled=true"), f"with the plugin: {commands('cni.enabled=true')}")
    for values in (ALL, ("nri.enabled=false",)):
        names = [one["name"] for one in removal(values)["spec"]["template"]["spec"]["initContainers"]]
        check(names == ["detach", "cni-uninstall", "library-collect"], f"{values}: what takes things out: {names}")


def test_no_process_of_a_node_keeps_the_chart_from_it(_world):
    """Or on it: versions of the library that it may have stay."""
    for pod in (pod_of(), pod_of(WEBHOOK), removal(())["spec"]["template"]["spec"]):
        command = next(one["command"] for one in pod["initContainers"] if one["name"] == "library-collect")
        check("--if-possible" in command, f"{command}")


def test_only_what_the_chart_keeps_on_a_node_is_removed_from_its_directory(_world):
    """The directory may have files of others: the Debian package has its broker's socket there."""
    source = (ROOT / "crates" / "agent" / "src" / "detach.rs").read_text()
    removed = set(re.findall(r'"(\w+)"', re.search(r"const KEPT: .* = \[(.*)\];", source)[1]))
    made = set()
    for values in (ALL, (), WEBHOOK):
        pod = pod_of(values)
        words = [word for one in containers(pod) for word in one["command"]]
        words += [volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume]
        made |= {found for word in words for found in re.findall(r"/run/sidestep/([^/]+)", word)}
    check(made == removed | {"agent.sock"}, f"the chart makes {made}, and `--detach --empty` removes {removed}")


def test_a_node_without_an_agent_does_not_keep_the_chart(_world):
    """With the CNI plugin in its chain, no pod with a network of its own starts there."""
    for values in (ALL, (), WEBHOOK):
        job = next(one for one in rendered(values) if one["kind"] == "Job")
        pod = job["spec"]["template"]["spec"]
        check(pod.get("hostNetwork") and pod["dnsPolicy"] == "ClusterFirstWithHostNet", f"{values}: {pod}")
        check(removal(values)["spec"]["template"]["spec"]["hostNetwork"], f"{values}: what takes things out waits for the plugin")


def test_a_new_node_gets_its_agent_before_its_network(_world):
    """Without a kube-proxy the network plugin may need the agent to write its configuration."""
    commands = {one["name"]: one["command"] for one in containers(pod_of(ALL))}
    check("--allow-missing" in commands["cni-install"], f"the agent waits for the network: {commands['cni-install']}")
    check("--watch" in commands["cni"], f"nobody installs the plugin later: {commands['cni']}")
