"""The real pilot-agent with Envoy, as the injected container runs them."""

import json
import os
import shutil

from testkit import wait

from .istiod import DISCOVERY, NAME, answers
from .places import DOMAIN, NAMESPACE, NODE, PROXY_ID, STATUS_PORT

START_SECONDS = 90


class Sidecar:
    def __init__(self, pod):
        self.pod, self.world = pod, pod.world
        self.directory = pod.world.directory / f"{pod.place.name}-sidecar"
        self.cgroup = pod.cgroup.child("proxy")
        self.process = None

    def start(self):
        """Files that would be mounted into the container are below pilot-agent's working directory."""
        place, istiod = self.pod.place, self.world.istiod
        for name, text in {"var/run/secrets/tokens/istio-token": istiod.token(place.app),
                           "var/run/secrets/istio/root-cert.pem": istiod.root,
                           "etc/istio/pod/labels": f'app="{place.app}"\n', "etc/istio/pod/annotations": ""}.items():
            file = self.directory / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (self.directory / "etc/istio/proxy").mkdir(exist_ok=True)
        for directory, _, files in os.walk(self.directory):
            for name in (".", *files):
                shutil.chown(os.path.join(directory, name), PROXY_ID, PROXY_ID)
        programs = self.world.programs
        self.process = self.world.start_process(
            f"{place.name}-sidecar", self.pod.around(
                [programs / "pilot-agent", "proxy", "sidecar", "--domain", f"{NAMESPACE}.svc.{DOMAIN}",
                 "--proxyLogLevel=warning", "--log_output_level=default:info", "--concurrency", "1",
                 "--templateFile", programs / "envoy_bootstrap.json"], PROXY_ID, self.cgroup),
            cwd=self.directory, env={**self.world.env, **self.environment()})

    def stop(self):
        """Kills pilot-agent and Envoy, which is in another process group. No program listens at its ports then."""
        self.world.processes.remove(self.process)
        self.cgroup.kill()
        wait.until(self.cgroup.is_empty, f"the sidecar of {self.pod.place.name} to end", START_SECONDS)
        self.process.destroy()

    def environment(self):
        place = self.pod.place
        config = {"binaryPath": str(self.world.programs / "envoy"), "configPath": "./etc/istio/proxy",
                  "discoveryAddress": DISCOVERY, "concurrency": 1, "statusPort": STATUS_PORT}
        return {
            "POD_NAME": place.name, "POD_NAMESPACE": NAMESPACE, "INSTANCE_IP": place.address, "HOST_IP": NODE,
            "SERVICE_ACCOUNT": place.app, "ISTIO_META_CLUSTER_ID": "Kubernetes", "ISTIO_META_MESH_ID": DOMAIN,
            "ISTIO_META_DNS_CAPTURE": "true", "ISTIO_META_INTERCEPTION_MODE": "REDIRECT",
            "ISTIO_META_WORKLOAD_NAME": place.app,
            "ISTIO_METAJSON_LABELS": json.dumps({"app": place.app}), "TRUST_DOMAIN": DOMAIN, "CA_ADDR": DISCOVERY,
            "ISTIOD_SAN": NAME, "JWT_POLICY": "third-party-jwt", "PILOT_CERT_PROVIDER": "istiod",
            "ISTIO_CPU_LIMIT": "1", "PROXY_CONFIG": json.dumps(config)}

    def await_ready(self):
        """Envoy has its complete configuration from istiod, and serves."""
        wait.until(lambda: self.pod.namespace.call(lambda: answers("127.0.0.1", STATUS_PORT, "/healthz/ready")),
                   f"the sidecar of {self.pod.place.name} to be ready", START_SECONDS, self.process.must_run)
