"""Kubernetes' own end-to-end tests, as e2e.test of the release that runs here has them: Services and NetworkPolicies, by Sidestep alone.

The tests start pods of the image agnhost. Here it is made of the same sources and of this machine's curl, netcat and others; the
kubelets give pods the names of the cluster by a server of these tests.
"""

import json
import re
import subprocess
from pathlib import Path

from cluster import external
from cluster.build import BINARIES
from cluster.images import Image
from cluster.nameserver import DOMAIN, NameServer
from kube.addresses import CONTROL
from kube.build import KUBERNETES
from testkit.commands import ENV, must_be_installed, run
from testkit.console import say
from testkit.failure import Failure
from testkit.paths import program

# What Services and pods need of a node. The others are of names (DNS), of ports of a host (another CNI plugin), and of the API server.
SERVICES = (r"\[sig-network\] (Services|EndpointSlice|API Server|Service endpoints latency|Networking Granular Checks: Pods) "
            r".*\[Conformance\]")
POLICIES = r"\[sig-network\] Netpol .*\[Feature:NetworkPolicy\]"
# The kernel's SCTP is not there, and Sidestep leaves it alone.
SKIPPED = r"\[Feature:SCTPConnectivity\]"
# What the tests call in a pod, besides the shell's own commands.
COMMANDS = ("cat", "curl", "date", "grep", "ip", "nc", "nslookup", "seq", "sh", "sleep", "ss", "tail", "timeout", "tr", "wget")
PACKAGES = "cluster"
CASE = re.compile(r"codename: '((?:[^']|'')*)'")
LEAST_POLICIES = 35
MOST_SECONDS, GRACE_SECONDS = 5400, 120
SHOWN = 600


def service_conformance(cluster, checks):
    """Kubernetes' own conformance cases for Services, by e2e.test and agnhost, without kube-proxy."""
    passed = end_to_end(cluster, checks, SERVICES)
    missing = conformance_cases(SERVICES) - passed
    checks.check(cluster.focus or not missing, f"service_conformance: not among those that passed: {sorted(missing)}")


def policy_conformance(cluster, checks):
    """Kubernetes' own cases for NetworkPolicy, by e2e.test and agnhost: a quarter of an hour."""
    passed = end_to_end(cluster, checks, POLICIES)
    checks.check(cluster.focus or len(passed) >= LEAST_POLICIES, f"policy_conformance: {len(passed)} cases passed")


def end_to_end(cluster, checks, focus):
    """The names of those of e2e.test that passed. `--focus` is for one of them."""
    must_be_installed(COMMANDS, PACKAGES)
    for image in images(cluster.directory):
        cluster.bring(image)
    cluster.helm_upgrade(*external.VALUES, "agent.networkPolicies=true")
    for node in cluster.nodes:
        node.restart_with(clusterDNS=[CONTROL], clusterDomain=DOMAIN)
    server = NameServer(cluster.plane)
    try:
        report, said = run_tests(cluster, cluster.focus or focus)
    finally:
        server.stop()
    return judge(checks, report, said)


def run_tests(cluster, focus):
    """The report, if there is one, and the last that the program said."""
    report, log = cluster.directory / "end-to-end.json", cluster.directory / "end-to-end.log"
    report.unlink(missing_ok=True)
    command = cluster.plane.namespace.around([
        "nice", "-n", "5", BINARIES / "e2e.test", f"--kubeconfig={cluster.plane.kubeconfig}", f"--kubectl-path={BINARIES / 'kubectl'}",
        "--provider=skeleton", "--dump-logs-on-failure=false", f"--e2e-output-dir={cluster.directory}",
        f"--ginkgo.focus={focus}", f"--ginkgo.skip={SKIPPED}", "--ginkgo.no-color",
        f"--ginkgo.timeout={MOST_SECONDS}s", f"--ginkgo.json-report={report}"])
    env = {**ENV, "HOME": str(cluster.directory)}
    with open(log, "w") as output:
        try:
            subprocess.run(command, env=env, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                           timeout=MOST_SECONDS + GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            raise Failure(f"e2e.test did not end within {MOST_SECONDS} s: {end_of(log)}") from None
    return (json.loads(report.read_text()) if report.exists() else []), end_of(log)


def end_of(log):
    return log.read_text(errors="replace")[-4 * SHOWN:]


def judge(checks, report, said):
    """A case that the focus leaves out says nothing; one that skips itself says why, which is told."""
    specs = [spec for suite in report for spec in suite["SpecReports"] or ()]
    passed = set()
    for spec in specs:
        name, state = full_name(spec), spec["State"]
        why = (spec.get("Failure") or {}).get("Message", "")
        if state == "skipped":
            if why:
                say(f"left out by itself: {name}: {why[:SHOWN]}")
            continue
        is_case = spec["LeafNodeType"] == "It"
        if is_case or state != "passed":
            checks.check(state == "passed", f"{name}: {state}: {why[:SHOWN]}")
        if is_case and state == "passed":
            passed.add(name)
            checks.figures[f"seconds: {name}"] = spec["RunTime"] / 1e9
    checks.check(bool(passed), f"no case of e2e.test passed: {said}")
    return passed


def full_name(spec):
    return " ".join([*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]])


def conformance_cases(focus):
    """The names in the list that the release itself has of its conformance cases."""
    text = (KUBERNETES.sources() / "test" / "conformance" / "testdata" / "conformance.yaml").read_text()
    names = {" ".join(name.replace("''", "'").split()) for name in CASE.findall(text)}
    found = {name for name in names if re.search(focus, name)}
    if not found:
        raise Failure(f"Kubernetes' list of conformance cases has none like {focus!r}")
    return found


def images(directory):
    """By the names that the tests have for them."""
    named = run(BINARIES / "e2e.test", "--list-images").split()
    agnhost = Image("agnhost")
    agnhost.add("agnhost", BINARIES / "agnhost")
    for name in COMMANDS:
        agnhost.add_program(f"bin/{name}", program(name))
    # That of the image, which is BusyBox's, tries once.
    agnhost.add_text("etc/wgetrc", "tries = 1\n", mode=0o644)
    agnhost.entrypoint, agnhost.command = ["/agnhost"], ["pause"]
    pause = Image("pause")
    pause.add("pause", directory / "pause")
    pause.entrypoint = ["/pause"]
    made = {"agnhost": agnhost, "pause": pause}
    for short, image in made.items():
        image.names = [name for name in named if Path(name.rpartition(":")[0]).name == short]
        if not image.names:
            raise Failure(f"e2e.test names no image {short}: {named}")
        image.name = f"sidestep.test/end-to-end-{short}:1"
    return list(made.values())


CASES = (service_conformance, policy_conformance)
