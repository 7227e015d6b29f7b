"""The service: nginx with a small answer, and no limit on how long a connection is kept."""

from .pod import own
from .settings import BODY, PORTS

NGINX = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
    client_body_temp_path {folder};
    proxy_temp_path {folder};
    fastcgi_temp_path {folder};
    uwsgi_temp_path {folder};
    scgi_temp_path {folder};
    server {{
{listen}
        location = / {{ default_type application/json; return 200 '{body}'; }}
    }}
}}
"""


def start(pods, places, place, folder):
    own(folder, "app")
    config = folder / "nginx.conf"
    listen = "\n".join(f"        listen {place.address}:{port};" for port in PORTS)
    config.write_text(NGINX.format(folder=folder, listen=listen, body=BODY), encoding="ascii")
    return pods.start(place, "app", [places.tool("nginx"), "-p", folder, "-e", "stderr", "-c", config])
