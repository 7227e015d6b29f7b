"""Istio as its own charts install it: istiod is a pod, and its webhook puts `istio-proxy` into others. The images are made of the
programs of tests/kube, and of a plain Envoy; the charts come with the Go module that these programs are built from."""

import json
import os
import re

from cluster.images import Image
from kube.build import BINARIES, ISTIO, WORK
from kube.mesh.istiod import ENVIRONMENT
from kube.mesh.things import ISTIO_SYSTEM
from testkit import paths
from testkit.commands import run
from testkit.failure import Failure

VERSION = re.compile(r"^require istio\.io/istio (v\S+)$", re.MULTILINE)
BIN, BOOTSTRAP = "usr/local/bin", "var/lib/istio/envoy/envoy_bootstrap_tmpl.json"
USER = "1337"
INSTALL_SECONDS = 240
# With its CNI component, so that the injector adds no istio-init, and what a plain Envoy does not know switched off.
VALUES = {
    "global.hub": "sidestep.test", "global.tag": "1", "global.imagePullPolicy": "Never", "autoscaleEnabled": "false",
    "resources.requests.cpu": "10m", "resources.requests.memory": "64Mi", "global.proxy.resources.requests.cpu": "10m",
    "cni.enabled": "true", "telemetry.enabled": "false", "meshConfig.enablePrometheusMerge": "false",
    "meshConfig.defaultConfig.concurrency": "1"}
TEXTS = {"meshConfig.defaultConfig.proxyMetadata.ISTIO_META_DNS_CAPTURE": "true"} | {
    f"env.{name}": value for name, value in ENVIRONMENT.items() if name.startswith("PILOT_ENABLE")}
# What charts of Istio have in common. All else is of istiod's own chart, which is called pilot where one file has the values of all.
COMMON = ("global", "telemetry")


def charts():
    found = VERSION.search((ISTIO.folder / "go.mod").read_text())
    directory = WORK / "go" / "pkg" / "mod" / "istio.io" / f"istio@{found.group(1)}" / "manifests" / "charts"
    if not directory.exists():
        raise Failure(f"{directory} is not there: run tests/kube/build.py")
    return directory


def images():
    pilot, proxy = Image("pilot"), Image("proxyv2", env=(f"PATH=/{BIN}:/bin",))
    pilot.add(f"{BIN}/pilot-discovery", BINARIES / "pilot-discovery")
    pilot.entrypoint, pilot.user = [f"/{BIN}/pilot-discovery"], USER
    proxy.add(f"{BIN}/pilot-agent", BINARIES / "pilot-agent")
    proxy.add_program(f"{BIN}/envoy", paths.envoy())
    proxy.add(BOOTSTRAP, ISTIO.bootstrap, mode=0o644)
    proxy.entrypoint, proxy.user = [f"/{BIN}/pilot-agent"], USER
    return pilot, proxy


def install(cluster):
    """By Helm, as Istio's documentation has it. Returns the address of istiod's Service."""
    bring_images(cluster)
    place = charts()
    cluster.helm("install", "istio-base", place / "base", "--create-namespace", "--wait", namespace=ISTIO_SYSTEM)
    words = [word for option, values in (("--set", VALUES), ("--set-string", TEXTS)) for name, value in values.items()
             for word in (option, f"{name}={value}")]
    cluster.helm("install", "istiod", place / "istio-control" / "istio-discovery", *words, "--wait",
                 "--timeout", f"{INSTALL_SECONDS}s", namespace=ISTIO_SYSTEM)
    return address(cluster)


def install_by_istioctl(cluster):
    """The same by `istioctl install`, which has the charts in itself: without its CNI component, and as if that were there."""
    bring_images(cluster)
    file = cluster.directory / "istio-operator.json"
    file.write_text(json.dumps(operator()))  # JSON is YAML
    command = cluster.plane.namespace.around([
        BINARIES / "istioctl", "install", "--skip-confirmation", "--filename", file, "--kubeconfig", cluster.plane.kubeconfig,
        "--readiness-timeout", f"{INSTALL_SECONDS}s"])
    run(*command, env={**os.environ, "HOME": str(cluster.directory)}, seconds=2 * INSTALL_SECONDS)
    return address(cluster)


def operator():
    """What istioctl reads in place of a chart's values."""
    spec = {"profile": "minimal"}
    for name, value in {**{name: typed(value) for name, value in VALUES.items()}, **TEXTS}.items():
        path = name.split(".")
        if path[0] != "meshConfig":
            # istioctl replaces values.pilot.cni by what the component CNI is.
            root = "unvalidatedValues" if path[0] == "cni" else "values"
            path = [root, *([] if path[0] in COMMON else ["pilot"]), *path]
        place = spec
        for part in path[:-1]:
            place = place.setdefault(part, {})
        place[path[-1]] = value
    return {"apiVersion": "install.istio.io/v1alpha1", "kind": "IstioOperator", "spec": spec}


def typed(value):
    """As Helm takes what `--set` has."""
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def bring_images(cluster):
    for image in images():
        cluster.bring(image)


def address(cluster):
    service = cluster.api.get({"kind": "Service", "metadata": {"name": "istiod", "namespace": ISTIO_SYSTEM}})
    return service["spec"]["clusterIP"]
