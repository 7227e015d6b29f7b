"""Pods and containers, made through the runtime's CRI as a kubelet makes them."""

import itertools
import json
import uuid

from testkit import wait
from testkit.failure import Failure

POD, CONTAINER, NODE = 0, 1, 2
RINGS = "sidestep.dev/rings"
# Users of a pod that has its own, and where these begin on the node.
USERS = {"container_id": 0, "host_id": 200_000, "length": 65_536}
NUMBERS = itertools.count(1)
# As Pod Security "restricted" wants it.
RESTRICTED = {"readonly_rootfs": True, "no_new_privs": True, "capabilities": {"drop_capabilities": ["ALL"]},
              "seccomp": {"profile_type": 0}}


class Pod:
    def __init__(self, node, namespace="shop", label="enabled", annotations=None, network=POD, has_users=False):
        self.node = node
        self.uid = str(uuid.uuid4())
        # Known even if the runtime fails: it may have made some of the pod.
        node.uids.append(self.uid)
        self.name = f"pod-{next(NUMBERS)}"
        self.namespace = namespace
        labels = {} if label is None else {RINGS: label}
        self.namespaces = {"network": network, "pid": CONTAINER, "ipc": POD}
        if has_users:
            self.namespaces["userns_options"] = {"mode": POD, "uids": [USERS], "gids": [USERS]}
        security = {"namespace_options": self.namespaces}
        self.config = node.write(f"{self.name}.json", json.dumps({
            "metadata": {"name": self.name, "namespace": namespace, "uid": self.uid, "attempt": 1},
            "labels": labels, "annotations": annotations or {}, "log_directory": str(node.directory),
            "linux": {"cgroup_parent": f"/kubepods/besteffort/pod{self.uid}", "security_context": security}}))
        self.id = node.crictl("runp", self.config).strip()

    def run(self, name, image, command, env=None, user=1000, mounts=None):
        """A container of the pod, started."""
        config = self.node.write(f"{self.name}-{name}.json", json.dumps({
            "metadata": {"name": name}, "image": {"image": image.name}, "command": command,
            "envs": [{"key": key, "value": value} for key, value in (env or {}).items()],
            "mounts": [{"host_path": str(host), "container_path": path} for path, host in (mounts or {}).items()],
            "log_path": f"{self.name}-{name}.log",
            "linux": {"security_context": {"run_as_user": {"value": user}, "namespace_options": self.namespaces, **RESTRICTED}}}))
        identity = self.node.crictl("create", self.id, config, self.config).strip()
        self.node.crictl("start", identity)
        return Container(self.node, self, name, identity)

    def remove(self):
        self.node.crictl("stopp", self.id)
        self.node.crictl("rmp", "--force", self.id)


class Container:
    def __init__(self, node, pod, name, identity):
        self.node, self.pod, self.name, self.id = node, pod, name, identity

    def inspect(self):
        return json.loads(self.node.crictl("inspect", self.id))

    def pid(self):
        return self.inspect()["info"]["pid"]

    def environment(self):
        """Of the first process, after its exec: before that it is runc's."""
        def read():
            text = self.node.proc(self.pid(), "environ")
            return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)
        return wait.until(read, f"{self.name} to have an environment")

    def mounts(self):
        """Options of mounts by their places."""
        lines = [line.split() for line in self.node.proc(self.pid(), "mountinfo").splitlines()]
        return {fields[4]: fields[5].split(",") for fields in lines}

    def wait(self, seconds):
        """Waits for the container's end; its exit code must be 0."""
        def ended():
            status = self.inspect()["status"]
            return status if status["state"] == "CONTAINER_EXITED" else None
        status = wait.until(ended, f"{self.name} to end", seconds)
        if status["exitCode"] != 0:
            raise Failure(f"{self.name} failed with {status['exitCode']}:\n{self.log()}")

    def stop(self):
        self.node.crictl("stop", "--timeout", "10", self.id)

    def log(self):
        path = self.node.directory / f"{self.pod.name}-{self.name}.log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""
