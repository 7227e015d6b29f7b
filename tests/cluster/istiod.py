"""Istio as its own charts install it: istiod is a pod, and its webhook puts `istio-proxy` into others. The images are made of the
programs of tests/kube, and of a plain Envoy; the charts come with the Go module that these programs are built from."""

import re

from cluster.images import Image
from kube.build import BINARIES, ISTIO, WORK
from kube.mesh.istiod import ENVIRONMENT
from kube.mesh.things import ISTIO_SYSTEM
from testkit import paths
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
    """Returns the address of istiod's Service."""
    for image in images():
        cluster.bring(image)
    place = charts()
    cluster.helm("install", "istio-base", place / "base", "--create-namespace", "--wait", namespace=ISTIO_SYSTEM)
    words = [word for option, values in (("--set", VALUES), ("--set-string", TEXTS)) for name, value in values.items()
             for word in (option, f"{name}={value}")]
    cluster.helm("install", "istiod", place / "istio-control" / "istio-discovery", *words, "--wait",
                 "--timeout", f"{INSTALL_SECONDS}s", namespace=ISTIO_SYSTEM)
    service = cluster.api.get({"kind": "Service", "metadata": {"name": "istiod", "namespace": ISTIO_SYSTEM}})
    return service["spec"]["clusterIP"]
