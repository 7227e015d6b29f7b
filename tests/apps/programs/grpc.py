"""gRPC (grpcio): unary calls and streams either way and both ways, every message compared; also through Envoy."""

from apps.support import grpc
from apps.support.marks import slow

version = grpc.version


@slow(120)
def test_calls(case):
    """Three connections, 40 calls at once on each, messages of 0 to 300000 bytes; streams either way and both ways."""
    case.expect_ring("client", "server", share=0.5)
    grpc.call(case, grpc.Server(case).port)


@slow(120)
def test_calls_through_envoy(case):
    """The same through Envoy's HTTP router, HTTP/2 on both sides, and through its tcp_proxy."""
    case.expect_ring("client", "envoy", "server")
    for port in grpc.start_envoy(case, grpc.Server(case).port):
        grpc.call(case, port)
