"""php-fpm over TCP behind nginx: bodies through FastCGI both ways, load, workers that are replaced all the time."""

import hashlib
import os
import signal
from pathlib import Path

from apps.support import files, nginx_config, versions, wrk
from apps.support.marks import slow
from testkit import net, paths
from testkit.failure import Failure, check

SIZES = (*files.SIZES, 5_000_003)
BLOCKS = (0, 1, 100, 50_000)

# Echoes what was posted, or makes a text that can be made here too.
SCRIPT = """<?php
if ($_SERVER['REQUEST_METHOD'] === 'POST') {
    echo file_get_contents('php://input');
} else {
    for ($n = 0; $n < (int)$_GET['blocks']; $n++) { echo hash('sha256', (string)$n); }
}
"""

PHP_CONFIG = """
[global]
error_log = {tmp}/php-fpm.log
daemonize = no
process_control_timeout = 10s
[www]
listen = {host}:{port}
pm = static
pm.max_children = 3
pm.max_requests = {requests}
clear_env = no
{user}
"""

NGINX_CONFIG = """
{head}
daemon off;
http {{
    {common}
    upstream php {{
        server {host}:{service};
        keepalive {kept};
    }}
    server {{
        listen {host}:{port};
        location / {{
            fastcgi_pass php;
            fastcgi_keep_conn on;
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param CONTENT_TYPE $content_type;
            fastcgi_param CONTENT_LENGTH $content_length;
            fastcgi_param QUERY_STRING $query_string;
            fastcgi_param SCRIPT_FILENAME {script};
        }}
    }}
}}
"""


def binary():
    """Debian's php-fpm carries its version in its name."""
    found = sorted(Path("/usr/sbin").glob("php-fpm[0-9]*"))
    if not found:
        raise Failure("php-fpm is not installed: run tools/install-deps compat")
    return str(found[-1])


def version():
    return versions.of(r"PHP (\S+)", binary(), "--version")


class Site:
    """nginx in front of php-fpm with three workers, each of which ends after so many requests (0: never)."""

    def __init__(self, case, requests=0, kept=2):
        self.case = case
        self.port, service = net.free_port(), net.free_port()
        root = os.geteuid() == 0  # master and workers are to be one user, as Sidestep pairs processes of one user
        (case.tmp / "script.php").write_text(SCRIPT)
        (case.tmp / "front.conf").write_text(NGINX_CONFIG.format(
            head=nginx_config.head(case.tmp, "front", 2), common=nginx_config.common(case.tmp, "front"),
            host=net.LOOPBACK, port=self.port, service=service, kept=kept, script=case.tmp / "script.php"))
        (case.tmp / "php-fpm.conf").write_text(PHP_CONFIG.format(
            tmp=case.tmp, host=net.LOOPBACK, port=service, requests=requests,
            user="user = root\ngroup = root" if root else ""))
        self.php = case.start("php-fpm", [binary(), "-n", "-F", "-y", case.tmp / "php-fpm.conf",
                                          *(["-R"] if root else [])],
                              stop_signal=signal.SIGQUIT)  # at SIGTERM it kills its workers, which then write no report
        net.wait_port(service, self.php)
        self.nginx = case.start("nginx", nginx_config.command(case.tmp, "front", case.tmp / "front.conf"))
        net.wait_port(self.port, self.nginx)

    def url(self, blocks):
        return f"http://{net.LOOPBACK}:{self.port}/?blocks={blocks}"

    def post(self, name, content):
        """Posts a body, which must come back."""
        source, answer = self.case.tmp / f"{name}.sent", self.case.tmp / f"{name}.got"
        source.write_bytes(content)
        answer.write_bytes(b"")
        self.case.run("curl", [paths.program("curl"), "-sS", "--fail", "-H", "Expect:", "--data-binary", f"@{source}",
                               "-H", "Content-Type: application/octet-stream", "-o", answer, self.url(0)])
        check(answer.read_bytes() == content, f"a posted body of {len(content)} bytes came back changed")

    def get(self, blocks):
        text = self.case.run("curl", [paths.program("curl"), "-sS", "--fail", self.url(blocks)])
        wanted = "".join(hashlib.sha256(b"%d" % n).hexdigest() for n in range(blocks))
        check(text == wanted, f"a made text of {len(wanted)} bytes came as {len(text)} others")


@slow(90)
def test_bodies(case):
    """Bodies of many sizes are posted and come back, made texts of up to 3 MB are compared with the same made here."""
    case.expect_ring("nginx", "php-fpm")
    site = Site(case)
    for size in SIZES:
        site.post(f"f{size}", files.content(size, seed=2))
    for blocks in BLOCKS:
        site.get(blocks)


@slow(60)
def test_load(case):
    """wrk with two kept connections for two seconds."""
    case.expect_ring("wrk", "nginx", "php-fpm")
    site = Site(case)
    wrk.check_clean(wrk.result(wrk.start(case, site.url(20), 2, 2)))


@slow(90)
def test_workers_that_are_replaced(case):
    """Every worker of php-fpm ends after 20 requests and a new one is forked; no request may fail."""
    case.expect_seen("php-fpm")
    case.expect_ring("wrk", "nginx")
    site = Site(case, requests=20)
    wrk.check_clean(wrk.result(wrk.start(case, site.url(20), 2, 2)))
    site.post("after", files.content(300_001))
