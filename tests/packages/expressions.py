"""Alerts and dashboard: each expression is parsed by promtool, and evaluated with the metrics that programs really have."""

import contextlib
import json
import re
import socket
import subprocess
import threading
import urllib.request

from packages.chart import CHART
from testkit import bpffs, cgroups, namespaces, wait
from testkit.commands import ENV, run
from testkit.failure import check
from testkit.paths import ROOT

ALERTS = CHART / "files" / "alerts.yaml"
DASHBOARD = CHART / "files" / "dashboard.json"
RUNBOOK = ROOT / "docs" / "runbook.md"
METRICS = "127.0.0.1:9464"
# Of an agent whose API server does not answer, and of the plugin for NRI, whose runtime does not.
FAR_METRICS, PLUGIN_METRICS = "127.0.0.1:9466", "127.0.0.1:9420"
KUBECONFIG = {
    "apiVersion": "v1", "kind": "Config", "current-context": "far", "users": [{"name": "far", "user": {"token": "none"}}],
    "clusters": [{"name": "far", "cluster": {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}}],
    "contexts": [{"name": "far", "context": {"cluster": "far", "user": "far"}}]}
# Metrics of Prometheus itself.
OF_PROMETHEUS = {"up"}


def queries():
    """Of the dashboard, with a range instead of Grafana's variable."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    check(len(found) > 15, "the dashboard is not read")
    return [expression.replace("$__rate_interval", "5m") for expression in found]


def alerts():
    return re.findall(r"^ +expr: (.*)$", ALERTS.read_text(), re.MULTILINE)


def names(expression):
    return set(re.findall(r"\bsidestep_\w+", expression))


def test_promtool_understands_the_alerts(_world):
    run("promtool", "check", "rules", ALERTS)


def test_each_alert_fires_when_it_should_and_not_otherwise(_world):
    tests = ROOT / "tests" / "packages" / "alerts_test.yaml"
    run("promtool", "test", "rules", tests)
    tested = set(re.findall(r"alertname: (\w+)", tests.read_text()))
    check(tested == set(re.findall(r"- alert: (\w+)", ALERTS.read_text())), f"alerts without a test, or the other way: {tested}")


def test_the_runbook_says_what_to_do_about_each_alert(_world):
    said = re.findall(r"^\| `(Sidestep\w+)` \|", RUNBOOK.read_text(), re.MULTILINE)
    there = re.findall(r"- alert: (\w+)", ALERTS.read_text())
    check(sorted(said) == sorted(there), f"{RUNBOOK.name} has rows for {said}, and the alerts are {there}")


def test_expressions_name_metrics_that_are_there_and_give_values(world):
    with node(world) as text:
        pass
    (world.tmp / "metrics.txt").write_text(text)
    there = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line and not line.startswith("#")}
    for expression in [*queries(), *alerts()]:
        missing = names(expression) - there
        check(not missing, f"{expression}: nobody has {missing}")
    series = [line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    evaluate(world, series, queries())


def evaluate(world, series, expressions):
    """Counters grow by one each minute, so that rates are not zero; every query of the dashboard must then give a value."""
    def values(name, value):
        return f"{float(value):.0f}+1x60" if "_total" in name else f"{float(value):.0f}x60"

    unique = {name: values(name, value) for name, value in series}
    always = [{"expr": f"count({expression}) > bool 0", "eval_time": "30m", "exp_samples": [{"labels": "{}", "value": 1}]}
              for expression in expressions if "> 0" not in expression and "topk" not in expression]
    test = {"evaluation_interval": "1m", "tests": [{
        "interval": "1m", "input_series": [{"series": name, "values": value} for name, value in unique.items()],
        "promql_expr_test": always}]}
    check(len(always) > 15, "hardly anything is evaluated")
    file = world.tmp / "expressions.yaml"
    file.write_text(json.dumps(test))  # JSON is YAML
    run("promtool", "test", "rules", file)


@contextlib.contextmanager
def node(world):
    """An agent with a Service, a captured pod and a policy, and a broker: the text of their metrics."""
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    cgroup = cgroups.of_this_run("packages")
    bpf = bpffs.BpfFileSystem(world.tmp / "bpf")
    bpf.mount()
    pod = namespaces.Namespace("packages")
    processes = []
    try:
        config = settings(world, pod)
        words = [world.program("sidestep-agent"), "--config", config, "--cgroup", cgroup.path, "--pins", bpf.pins,
                 "--socket", world.tmp / "agent.sock", "--metrics", METRICS]
        processes.append(subprocess.Popen([str(word) for word in words]))
        broker = world.tmp / "broker"
        processes.append(subprocess.Popen([world.program("sidestepd"), "--address", broker, "--idle-exit", "0"]))
        processes += alone(world, cgroup, bpf)
        wait.until(lambda: "sidestep_capture_listeners_missing" in text_at(METRICS), "the agent's metrics", 60)
        # Backends have metrics once they are used. Nobody is there: the call fails after one was chosen.
        call = "import socket; socket.socket().connect_ex(('10.96.0.10', 80))"
        run(*cgroup.around(["python3", "-c", call]))
        wait.until(lambda: "sidestep_backend_picks_total" in text_at(METRICS), "a backend's metrics", 30)
        wait.until(lambda: "sidestep_watch_staleness_seconds" in text_at(FAR_METRICS), "the age of watches", 30)
        wait.until(lambda: "sidestep_nri_connected" in text_at(PLUGIN_METRICS), "the plugin's metrics", 30)
        wait.until(broker.exists, "the broker")
        use_broker(world, broker)
        of_far = "".join(line for line in text_at(FAR_METRICS).splitlines(True) if line.startswith("sidestep_watch"))
        yield (text_at(METRICS) + of_far + text_at(PLUGIN_METRICS)
               + run(world.program("sidestep"), "status", "--metrics", "--address", broker))
    finally:
        for process in processes:
            process.terminate()
            process.wait()
        for pins, place in ((bpf.pins, "agent.sock"), (bpf.path / "far", "far.sock")):
            run(world.program("sidestep-agent"), "--detach", "--pins", pins, "--socket", world.tmp / place)
        pod.remove()
        cgroup.kill()
        cgroup.remove()
        bpf.unmount()


def alone(world, cgroup, bpf):
    """Programs that wait for somebody else: the metrics that they have then."""
    kubeconfig = world.tmp / "kubeconfig"
    kubeconfig.write_text(json.dumps(KUBECONFIG))  # JSON is YAML
    agent = [world.program("sidestep-agent"), "--kubeconfig", kubeconfig, "--node-name", "far", "--cgroup", cgroup.child("far").path,
             "--pins", bpf.path / "far", "--socket", world.tmp / "far.sock", "--metrics", FAR_METRICS]
    plugin = [world.program("sidestep-nri"), "run", "--socket", world.tmp / "nri.sock", "--library", world.tmp, "--member", world.tmp,
              "--metrics", PLUGIN_METRICS]
    return [subprocess.Popen([str(word) for word in words]) for words in (agent, plugin)]


CLIENT = """
import select, socket, sys
client = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
while not select.select([sys.stdin], [], [], 0.01)[0]:
    client.send(b"x"), client.recv(1)
"""


def echo(server):
    """One connection, by a program without the library."""
    accepted, _ = server.accept()
    while received := accepted.recv(100):
        accepted.send(received)


def use_broker(world, broker):
    """Programs whose peer has no library: at the end that is a reason. On a busy machine one may end before it has offered its
    connection, then there is none."""
    status = (world.program("sidestep"), "status", "--metrics", "--address", broker)

    def has_reason():
        run_client(world, broker, status)
        return "sidestep_reasons_total" in run(*status)
    wait.until(has_reason, "a reason", 60)


def run_client(world, broker, status):
    """One that ends once it has joined."""
    env = {**ENV, "SIDESTEP_BROKER": str(broker), "SIDESTEP_LIBRARY": str(world.program("libsidestep.so"))}
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=echo, args=(server,), daemon=True).start()
        port = str(server.getsockname()[1])
        words = [world.program("sidestep"), "run", "--upgrade-after", "0ops", "python3", "-c", CLIENT, port]
        client = subprocess.Popen(words, env=env, stdin=subprocess.PIPE)
        wait.until(lambda: "sidestep_processes 1" in run(*status), "the program to join", 60)
        client.stdin.close()
        check(client.wait(30) == 0, "the program failed")


def text_at(address):
    try:
        return urllib.request.urlopen(f"http://{address}/metrics", timeout=5).read().decode()
    except OSError:
        return ""


def settings(world, pod):
    directory = world.tmp / "services"
    directory.mkdir(exist_ok=True)
    (directory / "web.yaml").write_text((ROOT / "examples" / "services" / "web.yaml").read_text())
    (directory / "policies.yaml").write_text((ROOT / "examples" / "policy" / "policies.yaml").read_text())
    (directory / "pod.yaml").write_text(json.dumps({
        "apiVersion": "sidestep.dev/v1", "kind": "Capture",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}}, "spec": {"netns": pod.name}}))
    return directory
