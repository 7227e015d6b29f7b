"""A control plane and the worlds that are compared; nothing of them is left afterwards."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import build
import leftovers
from cgroups import PREFIX
from checks import say
from controlplane import ControlPlane
from differences import SIDESTEP
from sidestep import Sidestep
from support.failure import Failure
from twin import Twin

PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
PROGRAMS = ("etcd", "iptables", "ip6tables", "ip", "nft", "nsenter", "openssl", "setpriv", "unshare")


class Lab:
    def __init__(self, options):
        self.options = options
        self.stack = contextlib.ExitStack()
        self.worlds = []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stack.close()
            raise
        return self

    def start(self):
        for name in PROGRAMS:
            if shutil.which(name, path=PATH) is None:
                raise Failure(f"{name} is not installed: run tools/install-deps kube")
        leftovers.sweep()
        self.directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        self.stack.callback(self.remove_directory)
        self.env = {**os.environ, "PATH": PATH}
        self.control_plane = ControlPlane(self.directory, build.BINARIES, self.env)
        self.stack.callback(self.control_plane.stop)
        self.control_plane.start()
        say("lab: etcd, kube-apiserver and kube-controller-manager run")
        for number, (kind, make) in enumerate(self.kinds(), 1):
            world = make(kind, number, self.control_plane, self.env)
            self.stack.callback(world.stop)
            world.start()
            self.worlds.append(world)
            say(f"lab: world {kind} runs")

    def kinds(self):
        """None if there is only the mesh to be tested, whose worlds are its own."""
        if self.options.parts == ["mesh"]:
            return []
        twins = [(mode, Twin) for mode in self.options.modes]
        return twins if self.options.world == "twins" else [*twins, (SIDESTEP, Sidestep)]

    def remove_directory(self):
        if self.options.keep:
            say(f"lab: logs are in {self.directory}")
        else:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __exit__(self, *_):
        self.stack.close()
