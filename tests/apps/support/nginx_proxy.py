"""nginx with four workers in front of another nginx: as an HTTP proxy with kept upstream connections, with buffers and
without, as a stream proxy, and as a server of HTTP/2."""

from pathlib import Path

from apps.support import nginx_config
from testkit import net

WORKERS = 4
STREAM_MODULE = Path("/usr/lib/nginx/modules/ngx_stream_module.so")

CONFIG = """
{module}
{head}
daemon off;
http {{
    {common}
    sendfile {sendfile};
    tcp_nopush {sendfile};
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    upstream service {{
        server 127.0.0.1:{service};
        keepalive 16;
    }}
    server {{
        listen 127.0.0.1:{buffered};
        location / {{ proxy_pass http://service; }}
    }}
    server {{
        listen 127.0.0.1:{unbuffered};
        proxy_buffering off;
        proxy_request_buffering off;
        location / {{ proxy_pass http://service; }}
    }}
    server {{
        listen 127.0.0.1:{http2} http2;
        root {site};
        location /proxy/ {{ proxy_pass http://service/; }}
    }}
}}
stream {{
    server {{
        listen 127.0.0.1:{stream};
        proxy_pass 127.0.0.1:{service};
    }}
}}
"""


class NginxProxy:
    """The proxy in front of a running `service` (support/nginx.py), with its ports."""

    def __init__(self, case, service, sendfile=True):
        self.buffered, self.unbuffered, self.http2, self.stream = (net.free_port() for _ in range(4))
        config = case.tmp / "proxy.conf"
        config.write_text(CONFIG.format(
            # Debian has the stream proxy as a module, other builds have it in the program.
            module=f"load_module {STREAM_MODULE};" if STREAM_MODULE.exists() else "",
            head=nginx_config.head(case.tmp, "proxy", WORKERS), common=nginx_config.common(case.tmp, "proxy"),
            site=service.site, sendfile="on" if sendfile else "off", service=service.port, buffered=self.buffered,
            unbuffered=self.unbuffered, http2=self.http2, stream=self.stream))
        self.process = case.start("proxy", nginx_config.command(case.tmp, "proxy", config))
        for port in (self.buffered, self.unbuffered, self.http2, self.stream):
            net.wait_port(port, self.process)
