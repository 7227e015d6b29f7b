"""nginx as the service of many tests: static files, uploads by PUT and POST, two workers."""

import os
import signal

from apps.support import files, nginx_config
from testkit import net, procfs, wait

WORKERS = 2

CONFIG = """
{head}
daemon {daemon};
{main}
http {{
    {common}
    sendfile {sendfile};
    tcp_nopush {sendfile};
    server {{
        listen 127.0.0.1:{port};
        root {site};
        location = /hello {{ return 200 "hello\\n"; }}
        location /up/ {{ dav_methods PUT; }}
        # nginx stores bodies of PUT only: a POST goes to itself as a PUT, and so over one more connection.
        location /post/ {{
            proxy_method PUT;
            proxy_pass http://127.0.0.1:{port}/up/;
        }}
    }}
}}
"""


class Nginx:
    """A running nginx with a directory of test files."""

    def __init__(self, case, sendfile=True, sizes=files.SIZES, main="", daemon=False):
        self.case = case
        self.port = net.free_port()
        self.site = case.tmp / "site"
        self.uploads = self.site / "up"
        self.uploads.mkdir(parents=True, exist_ok=True)
        self.names = files.make(self.site, sizes)
        self.config = case.tmp / "nginx.conf"
        self.config.write_text(CONFIG.format(
            main=main, head=nginx_config.head(case.tmp, "nginx", WORKERS), common=nginx_config.common(case.tmp, "nginx"),
            sendfile="on" if sendfile else "off", daemon="on" if daemon else "off", port=self.port, site=self.site))
        self.command = nginx_config.command(case.tmp, "nginx", self.config)
        if daemon:
            case.run("nginx", self.command)
            case.at_end(self.stop_daemon)
            wait.until(lambda: net.listens(self.port), "the nginx daemon to listen")
        else:
            self.process = case.start("nginx", self.command)
            net.wait_port(self.port, self.process)

    def url(self, path):
        return f"http://127.0.0.1:{self.port}/{path}"

    def master(self):
        """The master's pid, as nginx itself wrote it (`sidestep run` may stand between it and us).

        It listens before it writes, and creates the file before it fills it.
        """
        path = self.case.tmp / "nginx.pid"
        return int(wait.until(lambda: path.exists() and path.read_text().strip(), "nginx to write its pid"))

    def reload(self, seconds=15.0):
        """`nginx -s reload`, and waits until new workers run and the old ones are gone."""
        master = self.master()
        old = procfs.children(master)
        self.case.run("nginx-s", [*self.command, "-s", "reload"], preload=False)
        wait.until(lambda: len(procfs.children(master) - old) >= WORKERS, "new nginx workers", seconds,
                   self.process.must_run)
        wait.until(lambda: not procfs.children(master) & old, "the old nginx workers to end", seconds,
                   self.process.must_run)

    def replace_binary(self, seconds=15.0):
        """The binary upgrade of nginx: a new master inherits the listeners by exec, the old one ends.

        nginx does this only as a daemon (it takes a master with its first parent for the new one).
        """
        old = self.master()
        os.kill(old, signal.SIGUSR2)
        new = wait.until(lambda: self._other_master(old), "the new nginx master", seconds)
        wait.until(lambda: len(procfs.children(new)) >= WORKERS, "workers of the new nginx master", seconds)
        os.kill(old, signal.SIGQUIT)
        wait.until(lambda: not procfs.is_running(old), "the old nginx master to end", seconds)

    def stop_daemon(self, seconds=15.0):
        """Ends whichever masters run; the daemon is in a session of its own, where the case cannot see it."""
        masters = [p for p in procfs.all_pids() if self._is_our_master(p)]
        family = set(masters).union(*(procfs.children(p) for p in masters))
        for pid in masters:
            os.kill(pid, signal.SIGTERM)
        wait.until(lambda: not any(map(procfs.is_running, family)), "the nginx daemon to end", seconds)

    def _is_our_master(self, pid):
        title = " ".join(procfs.command_line(pid))
        return "nginx: master" in title and str(self.config) in title

    def _other_master(self, old):
        try:
            pid = self.master()
        except (OSError, ValueError):
            return None  # between the rename of the old pid file and the new one
        return pid if pid != old else None
