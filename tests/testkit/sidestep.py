"""How to run a program under Sidestep, and how to find and end the broker that this starts."""

import json
import os
import shutil
import signal
import subprocess

from testkit import paths, procfs, wait
from testkit.commands import run

# Settings that somebody may set to run all tests in another way (say, SIDESTEP_FLIP=1000).
PASSED_ON = ("SIDESTEP_FLIP", "SIDESTEP_SPIN", "SIDESTEP_RING_SIZE", "SIDESTEP_LOG")

# `sidestep` itself gives up after five.
OPERATOR_SECONDS = 20
BINARIES = ("sidestep", "sidestepd", "libsidestep.so")


class Sidestep:
    """One private broker name with everything that runs under it."""

    def __init__(self, broker, upgrade_after="0ops", bin_dir=None, flip=0, pairing=""):
        self.broker = broker
        self.flip = flip
        self.pairing = pairing
        self.upgrade_after = upgrade_after
        self.bin_dir = paths.built("release", *BINARIES, directory=bin_dir)

    @property
    def cli(self):
        return str(self.bin_dir / "sidestep")

    def command(self, argv, report):
        return [self.cli, "run", "--upgrade-after", self.upgrade_after, "--report", str(report), "--", *argv]

    def in_sync(self):
        """The same, but operations wait until the broker has answered what was offered."""
        return Sidestep(self.broker, self.upgrade_after, self.bin_dir, self.flip, pairing="sync")

    def preload_env(self, report):
        """Variables for a program that is not started by `sidestep run`, beside those of `env`."""
        return {"LD_PRELOAD": str(self.bin_dir / "libsidestep.so"), "SIDESTEP_UPGRADE_AFTER": self.upgrade_after,
                "SIDESTEP_REPORT": str(report)}

    def copy_binaries(self, directory):
        """Uses copies from now on, for a user who cannot look into the checkout."""
        directory.mkdir()
        for name in BINARIES:
            shutil.copy(self.bin_dir / name, directory)
        self.bin_dir = directory

    def env(self):
        kept = {k: os.environ[k] for k in PASSED_ON if k in os.environ}
        aids = {"SIDESTEP_FLIP": str(self.flip)} if self.flip else {}
        if self.pairing:
            aids["SIDESTEP_PAIRING"] = self.pairing
        return {**plain_env(), **kept, **aids, "SIDESTEP_BROKER": self.broker}

    def start_broker(self):
        """Has a broker of this name run, as the first program under Sidestep would."""
        subprocess.run(self.command(["true"], os.devnull), env=self.env(), check=True, timeout=20)

    def operate(self, *words):
        """A command of the operator, which must succeed; what it prints."""
        return run(self.cli, *words, env=self.env(), seconds=OPERATOR_SECONDS)

    def status(self):
        return json.loads(self.operate("status", "--json"))

    def broker_pids(self):
        """Brokers of this name: told by their variables or arguments, whatever became of who started them."""
        return [pid for pid in procfs.all_pids() if procfs.exe_name(pid) == "sidestepd"
                and procfs.is_running(pid) and self._is_ours(pid)]

    def _is_ours(self, pid):
        if f"SIDESTEP_BROKER={self.broker}" in procfs.environment(pid):
            return True
        return any(argument.endswith(self.broker) for argument in procfs.command_line(pid))

    def stop_brokers(self, seconds=5.0):
        """Ends the brokers of this name. A broker that does not obey SIGTERM is a failure, and is killed."""
        pids = self.broker_pids()
        for pid in pids:
            _kill(pid, signal.SIGTERM)
        try:
            wait.until(lambda: not any(map(procfs.is_running, pids)), f"broker {pids} to end at SIGTERM", seconds)
        finally:
            for pid in pids:
                _kill(pid, signal.SIGKILL)


def plain_env():
    """The caller's environment without anything that could put a program under Sidestep."""
    return {k: v for k, v in os.environ.items() if not k.startswith("SIDESTEP") and k != "LD_PRELOAD"}


def _kill(pid, sig):
    if procfs.exe_name(pid) == "sidestepd":  # never a stranger that got the number
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            pass
