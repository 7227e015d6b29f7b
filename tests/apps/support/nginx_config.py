"""What every nginx of the tests has in its configuration, and how it is called: one user for master and workers, since
Sidestep pairs processes of one user, and files that begin with `name` in the directory of the case."""

import os

from testkit import paths

HEAD = """
{user}
worker_processes {workers};
pid {tmp}/{name}.pid;
error_log {tmp}/{name}-error.log warn;
events {{ worker_connections 1024; }}
"""

COMMON = """
    access_log off;
    default_type application/octet-stream;
    keepalive_requests 1000000;
    client_max_body_size 100m;
    client_body_temp_path {tmp}/{name}-body;
    proxy_temp_path {tmp}/{name}-proxy;
    fastcgi_temp_path {tmp}/{name}-fastcgi;
    uwsgi_temp_path {tmp}/{name}-uwsgi;
    scgi_temp_path {tmp}/{name}-scgi;
"""


def head(tmp, name, workers):
    """The beginning of the file."""
    user = "user root;" if os.geteuid() == 0 else ""
    return HEAD.format(user=user, workers=workers, tmp=tmp, name=name)


def common(tmp, name):
    """The beginning of its `http` block."""
    return COMMON.format(tmp=tmp, name=name)


def command(tmp, name, config):
    return [paths.program("nginx"), "-e", str(tmp / f"{name}-error.log"), "-c", str(config)]
