"""HAProxy that is reloaded without a gap: the new process gets the listeners of the old one by its stats socket."""

import contextlib
import re
import signal
import socket

from apps.support import versions
from testkit import net, paths, wait
from testkit.failure import check

# What a master says.
RELOADING = "Reloading HAProxy"
ENDED = re.compile(r"exited with code (\d+)")

# HAProxy 2.6.12, which is Debian 12's, can crash in the last step of its end, when all is served: a known defect of it
# (_fd_delete_orphan called by deinit), mended later.
CRASHES_AT_EXIT = "2.6.12"

CONFIG = """
global
    maxconn 500
    nbthread 2
    hard-stop-after 20s
    stats socket {tmp}/haproxy.sock mode 600 level admin expose-fd listeners
defaults
    mode http
    timeout connect 5s
    timeout client 20s
    timeout server 20s
frontend kept
    bind 127.0.0.1:{kept}
    default_backend service
frontend short
    bind 127.0.0.1:{short}
    option httpclose
    default_backend service
frontend raw
    mode tcp
    bind 127.0.0.1:{raw}
    default_backend raw_service
backend service
    server nginx 127.0.0.1:{service}
backend raw_service
    mode tcp
    server nginx 127.0.0.1:{service}
"""


def version():
    return versions.of(r"version (\d+\.\d+\.\d+)", paths.program("haproxy"), "-v")


def crash_codes():
    return {signal.SIGSEGV} if version() == CRASHES_AT_EXIT else set()


class HAProxy:
    """A frontend that keeps connections, one that ends them after each answer, and one in TCP mode."""

    def __init__(self, case, service_port):
        self.case = case
        self.kept, self.short, self.raw = (net.free_port() for _ in range(3))
        self.config = case.tmp / "haproxy.cfg"
        self.config.write_text(CONFIG.format(
            tmp=case.tmp, kept=self.kept, short=self.short, raw=self.raw, service=service_port))
        self.process = self.start()
        for port in (self.kept, self.short, self.raw):
            net.wait_port(port, self.process)

    def start(self, *options):
        # At SIGTERM it kills itself, and writes no report.
        return self.case.start("haproxy", [paths.program("haproxy"), *self.mode(), "-f", self.config, *options],
                               stop_signal=signal.SIGUSR1)


class Successive(HAProxy):
    """Each reload is a new program, which takes the listeners over with -x and tells the old one to end."""

    def mode(self):
        return ["-db"]

    def reload(self, seconds=60.0):
        old = self.process
        self.process = self.start("-x", self.case.tmp / "haproxy.sock", "-sf", old.pid)
        old.wait(seconds, {0, *(-code for code in crash_codes())})


class MasterWorker(HAProxy):
    """A master starts itself anew when told to; its new worker takes the listeners over from the old one."""

    def mode(self):
        return ["-W", "-S", self.command_socket()]

    def command_socket(self):
        return self.case.tmp / "haproxy-master.sock"

    def reload(self, seconds=60.0):
        """By the master's command socket: a signal (SIGUSR2) that comes while the master starts is lost on it."""
        reloads, ends = self.reloads(), len(self.ends())
        wait.until(lambda: self.order("reload") or self.reloads() > reloads, "the haproxy master to reload", 20,
                   self.process.must_run)
        wait.until(lambda: len(self.ends()) > ends, "the old haproxy worker to end", seconds, self.process.must_run)
        bad = set(self.ends()) - {0, *(128 + code for code in crash_codes())}
        check(not bad, f"haproxy workers ended with {bad}")

    def order(self, command):
        """Gives an order to the master, and waits until the master ends the connection, as it does at a reload."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as control:
            control.settimeout(5)
            control.connect(str(self.command_socket()))
            control.sendall(f"{command}\n".encode())
            control.recv(100)

    def reloads(self):
        return self.process.output().count(RELOADING)

    def ends(self):
        """The exit codes of the workers that have ended."""
        return [int(code) for code in ENDED.findall(self.process.output())]
