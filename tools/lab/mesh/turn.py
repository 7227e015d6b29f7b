"""One load on one mesh."""

from .meter import Meter
from .plan import BY_NAME
from .settings import FRESH, GENERATOR, PORT, VIP


def take(mesh, cell):
    """What the load generator and the meter say."""
    load = BY_NAME[cell.load]
    return run(mesh, cell.connections, load.rate, mesh.plan.seconds, load.fresh)


def run(mesh, connections, rate, seconds, fresh=False):
    port, requests = (FRESH, 1) if fresh else (PORT, mesh.plan.requests)
    options = {"target": f"{VIP}:{port}", "connections": connections, "rate": rate, "seconds": seconds}
    options["requests"] = requests
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    argv = [mesh.places.built(GENERATOR), "load", *words]
    limit = seconds + mesh.plan.answer_limit
    talk = mesh.pods.talk(mesh.node.client, "app", argv)
    try:
        if talk.line(limit) != "ready":
            mesh.lab.fail(talk.popen, "is not ready")
        with Meter(cgroups(mesh), mesh.node.cgroup, mesh.plan.slice) as meter:
            answer = talk.ask("go", limit)
        # By itself, or a library that it runs with could not tell what went by ring.
        talk.end(limit)
    finally:
        talk.stop()
    # What it has cost includes those that were on their way at the end.
    return answer | {"cpu": meter.told(answer["answered"] + answer["drained"])}


def cgroups(mesh):
    """Of each program: client-app, client-proxy, server-proxy, server-app."""
    programs = ("proxy", "app") if mesh.sidecars else ("app",)
    pods = (mesh.node.client, mesh.node.server)
    return {f"{pod.role}-{program}": pod.cgroup_of(program) for pod in pods for program in programs}
