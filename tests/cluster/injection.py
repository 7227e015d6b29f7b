"""Injection: what containers get, which ones, and that their processes speak by ring."""

import os

from cluster.catalog import LIBRARY_OF_ITS_OWN
from cluster.pod import NODE, RINGS, Pod
from testkit import wait
from testkit.report import Report

PORT = 6379
# The sidecar is another user than the application.
SERVER_USER, CLIENT_USER = 1000, 1337
REQUESTS = 100_000
# Of each kind, over several connections: so many that those before the rings do not count on a busy machine.
BENCHMARK_REQUESTS = 200_000
END_SECONDS = 60
# Most of what the plugin may add to the start of a container.
MOST_SECONDS = 0.05
REDIS = ["redis-server", "--port", str(PORT), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
BENCHMARK = ["redis-benchmark", "-p", str(PORT), "-c", "4", "-n", str(BENCHMARK_REQUESTS), "-t", "set,get", "-q"]


def pod(node, **options):
    made = Pod(node, **options)
    node.pods.append(made)
    return made


def settings(name):
    return {"SIDESTEP_REPORT": f"/report/{name}", "SIDESTEP_UPGRADE_AFTER": "0ops"}


def start(node, made, name, image, command, **options):
    return made.run(name, image, command, env={**settings(f"{made.name}-{name}"), **options.pop("env", {})},
                    mounts={"/report": node.directory / "report"}, **options)


def report(node, container):
    return Report(node.directory / "report" / f"{container.pod.name}-{container.name}")


def additions(node, images, checks):
    """What a container has, by the kernel."""
    made = pod(node)
    container = start(node, made, "app", images.redis, ["sleep", "600"], env={"LD_PRELOAD": LIBRARY_OF_ITS_OWN})
    library = f"{node.version}/libsidestep.so"
    env = wait.until(lambda: (found := container.environment()).get("SIDESTEP_BROKER") and found, "the variables")
    checks.check(env["SIDESTEP_BROKER"] == str(node.address), f"SIDESTEP_BROKER is {env['SIDESTEP_BROKER']}")
    checks.check(env["LD_PRELOAD"] == f"{LIBRARY_OF_ITS_OWN}:{library}", f"LD_PRELOAD is {env['LD_PRELOAD']}")
    mounts = container.mounts()
    for place in (node.version, node.directory / "member"):
        options = mounts.get(str(place), [])
        checks.check("ro" in options and "nosuid" in options, f"{place} is mounted with {options}")
    maps = lambda: node.proc(container.pid(), "maps")  # noqa: E731 - it is short
    wait.until(lambda: library in maps(), "the library to be loaded")
    checks.check(LIBRARY_OF_ITS_OWN in maps() or "libm.so" in maps(), "the container's own library is loaded")
    spec = container.inspect()["info"]["runtimeSpec"]
    checks.check(not spec["process"]["capabilities"].get("bounding"), "it has no capabilities")
    checks.check(spec["process"]["noNewPrivileges"] and spec["root"]["readonly"], "it is restricted as before")
    said = node.crictl("exec", container.id, "/bin/sleep", "--version")
    checks.check("coreutils" in said, f"a process of exec runs: {said}")
    wait.until(lambda: report(node, container).lines, "the report of the process of exec, which had the library")


def beside_volumes(node, images, checks):
    """An empty volume over the directory in which the mounts are made, as pods with a read-only root have at /run."""
    volume = node.directory / "kubernetes.io~empty-dir" / "tmp"
    volume.mkdir(parents=True)
    container = pod(node).run("app", images.redis, ["sleep", "600"], mounts={f"/{node.directory.parts[1]}": volume})
    wait.until(lambda: "SIDESTEP_BROKER" in container.environment(), "the variables")
    wait.until(lambda: f"{node.version}/libsidestep.so" in node.proc(container.pid(), "maps"), "the library to be loaded")


def by_ring(node, images, checks):
    """Server and client of one pod, as different users, with a read-only root and no capabilities."""
    speak(node, images, checks, pod(node))


def in_user_namespaces(node, images, checks):
    """The same in a pod whose users are the pod's own."""
    speak(node, images, checks, pod(node, has_users=True))


def speak(node, images, checks, made):
    server = start(node, made, "server", images.redis, REDIS, user=SERVER_USER)
    wait.until(lambda: "Ready to accept connections" in server.log(), "the server to be ready", END_SECONDS)
    clients = [start(node, made, "client", images.redis, BENCHMARK, user=CLIENT_USER),
               start(node, made, "musl", images.musl, ["asker", str(PORT), str(REQUESTS)], user=CLIENT_USER)]
    for client in clients:
        client.wait(END_SECONDS)
        seen = report(node, client)
        share = seen.ring / max(seen.ring + seen.kernel, 1)
        checks.figures[f"{made.name}: share of bytes by ring, {client.name}"] = share
        checks.check(share >= 0.95, f"{client.name}: {share:.0%} of the bytes by ring: {seen}")
    checks.check(f"asked {REQUESTS} times" in clients[1].log(), f"the musl client: {clients[1].log()}")
    server.stop()
    seen = report(node, server)
    checks.check(seen.ring >= 0.95 * (seen.ring + seen.kernel) > 0, f"the server: {seen}")


def left_out(node, images, checks):
    """Containers that stay as they were, each with its reason."""
    for name, options in {
            "opted-out": {"annotations": {RINGS: "disabled"}},
            "host-network": {"network": NODE}}.items():
        made = pod(node, **options)
        container = made.run("app", images.redis, ["sleep", "600"])
        event = node.wait_event(made, "app")
        checks.check((event["event"], event["reason"]) == ("left-out", name), f"{name}: {event}")
        checks.check("SIDESTEP_BROKER" not in container.environment(), f"{name}: has variables")
        checks.check(str(node.version) not in container.mounts(), f"{name}: has mounts")
    half = pod(node, annotations={f"{RINGS}.one": "disabled"})
    one, other = (half.run(name, images.redis, ["sleep", "600"]) for name in ("one", "other"))
    checks.check("SIDESTEP_BROKER" not in one.environment(), "a container that opts out has variables")
    wait.until(lambda: "SIDESTEP_BROKER" in other.environment(), "the other container's variables")
    nobody = pod(node, label=None).run("app", images.redis, ["sleep", "600"])
    checks.check("SIDESTEP_BROKER" not in nobody.environment(), "nobody has enrolled it")
    listed = pod(node, label=None, namespace="listed").run("app", images.redis, ["sleep", "600"])
    wait.until(lambda: "SIDESTEP_BROKER" in listed.environment(), "the variables of a pod of a listed namespace")
    covered = pod(node)
    covered.run("app", images.redis, ["sleep", "600"], mounts={str(node.directory / "member"): node.directory / "cni"})
    checks.check(node.wait_event(covered, "app")["reason"] == "mount-conflict", "a mount in the way")


def no_effect(node, images, checks):
    """Entrypoints whose loader does not load the library, told when they start."""
    for name, command in {"static": ["pause"], "extra-rights": ["setuid", "600"], "unknown-libc": ["other-libc", "600"]}.items():
        made = pod(node)
        made.run("app", images.redis, command)
        event = node.wait_event(made, "app")
        checks.check((event["event"], event["reason"]) == ("no-effect", name), f"{name}: {event}")


def restarts(node, images, checks):
    """The runtime is killed and comes back, and the plugin ends and is started: no container waits for either."""
    before = pod(node).run("app", images.redis, ["sleep", "600"])
    node.restart_containerd()
    checks.check(os.path.exists(f"/proc/{before.pid()}"), "a container goes on without its runtime")
    after = pod(node).run("app", images.redis, ["sleep", "600"])
    wait.until(lambda: "SIDESTEP_BROKER" in after.environment(), "the variables of a container of the new runtime")
    node.stop_plugin()
    made = pod(node)
    without = made.run("app", images.redis, ["sleep", "600"])
    checks.check("SIDESTEP_BROKER" not in without.environment(), "a container starts without the plugin")
    node.start_plugin()
    checks.check(node.wait_event(made, "app")["reason"] == "created-before", "and is told when the plugin is back")


def versions(node, images, checks):
    """A version stays as long as a container has it, and is not written again."""
    keeper = pod(node)
    keeper.run("app", images.redis, ["sleep", "600"])
    first = node.version
    newer = node.directory / "newer"
    newer.mkdir()
    (newer / "libsidestep.so").write_bytes((node.release / "libsidestep.so").read_bytes() + b"\0")
    second = node.install_library(newer)
    checks.check(second != first and first.exists(), f"{first}, then {second}")
    library = node.directory / "lib"
    checks.check(f"used {first.name}" in node.collect(library), "it is in use")
    for other in list(node.pods):
        other.remove()
        node.pods.remove(other)
    checks.check(f"removed {first.name}" in node.collect(library), "nobody has it")
    checks.check(second.exists() and not first.exists(), "the current one stays")


def quick(node, _images, checks):
    """How long the runtime has waited for the plugin, over all that these tests have done."""
    count, total = (node.metric(f"sidestep_nri_request_seconds_{part}") for part in ("count", "sum"))
    mean = total / count
    checks.figures["seconds per request"] = mean
    checks.check(mean < MOST_SECONDS, f"a request takes {mean * 1000:.2f} ms")
    slow = count - node.metric('sidestep_nri_request_seconds_bucket{le="0.05"}')
    checks.check(slow == 0, f"{slow:.0f} of {count:.0f} requests took more than 50 ms")


# `quick` sums up what the plugin has done until it is restarted; `versions` removes the pods.
CASES = (additions, beside_volumes, by_ring, in_user_namespaces, left_out, no_effect, quick, restarts, versions)
