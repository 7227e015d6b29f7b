"""The gRPC server and client of peers/grpc_echo.py, run with the Python that has grpcio; and Envoy between them."""

import json
import subprocess

from apps.support import echo, envoy, pypi, versions
from testkit import net, paths

HTTP2 = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def python():
    """The interpreter that finds grpcio."""
    return pypi.program("python")


def version():
    return versions.of(r"(\S+)", python(), "-c", "import grpc; print(grpc.__version__)")


class Server:
    """Ends at the end of its standard input: at SIGTERM it would write no report."""

    def __init__(self, case):
        self.process = case.start("server", [python(), case.peer("grpc_echo.py"), "serve"], stdin=subprocess.PIPE)
        self.port = int(self.process.wait_output(echo.LISTENING, 30).group(1))
        case.at_end(self.stop)

    def stop(self):
        if not self.process.ended:
            self.process.must_run()
            self.process.popen.stdin.close()
            self.process.wait(15)


def call(case, port, *options):
    argv = [python(), case.peer("grpc_echo.py"), "call", "--port", port, *options]
    echo.run_client(case, argv)


def start_envoy(case, service_port):
    """An Envoy with two workers that speaks HTTP/2 to both sides; returns its HTTP and its tcp_proxy port."""
    ports = net.free_port(), net.free_port()
    configuration = envoy.configuration(*ports, service_port)
    configuration["static_resources"]["clusters"][0]["typed_extension_protocol_options"] = {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": HTTP2, "explicit_http_config": {"http2_protocol_options": {}}}}
    config = case.tmp / "envoy-grpc.json"
    config.write_text(json.dumps(configuration, indent=1))
    process = case.start("envoy", [paths.envoy(), "-c", config, "--concurrency", "2", "--disable-hot-restart",
                                   "--log-level", "warn"])
    for port in ports:
        net.wait_port(port, process, 30)
    return ports
