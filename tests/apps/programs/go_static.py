"""A static Go client: the library cannot get into it. It must just work, and its peer must stay on the kernel."""

import subprocess

from apps.support import echo, versions
from testkit import paths
from testkit.failure import check

# Go's standard library is compiled at the first use; kept between runs.
GO_CACHE = paths.TARGET / "go-cache"


def version():
    return versions.of(r"(go\S+) linux", paths.program("go"), "version")


def build_client(case):
    """Builds the client and makes sure that it is what the test is about: a static program."""
    client = case.tmp / "echo_client"
    case.run("go", [paths.program("go"), "build", "-o", client, case.peer("go/echo_client.go")], seconds=110,
             preload=False, env={"CGO_ENABLED": "0", "GOCACHE": str(GO_CACHE), "GO111MODULE": "off", "GOFLAGS": "",
                                 "GOTOOLCHAIN": "local"})
    check(not has_interpreter(client), "go built a dynamically linked client")
    return client


def has_interpreter(binary):
    """Whether the program asks for the dynamic loader (and so obeys LD_PRELOAD)."""
    headers = subprocess.run([paths.program("readelf"), "-l", binary], check=True, capture_output=True, text=True)
    return "INTERP" in headers.stdout


def test_client_of_preloaded_server(case):
    case.expect_kernel("server")
    case.expect_untouched("client")
    client = build_client(case)
    port = echo.start_server(case, echo.python_server(case, "epoll"))
    echo.run_client(case, [client, port, 6])


def test_go_and_preloaded_clients_together(case):
    """The same server serves one client by the kernel and one by ring, at the same time."""
    case.expect_ring("server", "python")
    case.expect_untouched("client")
    client = build_client(case)
    port = echo.start_server(case, echo.python_server(case, "epoll"))
    background = case.start("python", echo.python_client(case, "epoll", port))
    echo.run_client(case, [client, port, 6])
    background.wait(30)
