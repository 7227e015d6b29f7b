"""Erlang: its machine exports functions of libc's names, among them sigaction and read."""

import subprocess

from apps.support import echo, versions
from apps.support.marks import slow
from testkit import paths


def version():
    return versions.of(r"(\d+)", paths.program("erl"), "-noshell", "-eval",
                       'io:format("~s~n", [erlang:system_info(otp_release)]), halt().')


def escript(case, *options):
    return [paths.program("escript"), case.peer("echo.escript"), *options]


class Server:
    """Ends at the end of its standard input, as Erlang does not end by SIGTERM at once."""

    def __init__(self, case):
        self.process = case.start("server", escript(case, "serve"), stdin=subprocess.PIPE)
        self.port = int(self.process.wait_output(echo.LISTENING, 60).group(1))
        case.at_end(self.stop)

    def stop(self):
        if not self.process.ended:
            self.process.must_run()
            self.process.popen.stdin.close()
            self.process.wait(30)


@slow(120)
def test_echo(case):
    case.expect_ring("server", "client")
    echo.run_client(case, escript(case, "ask", Server(case).port, 8))


@slow(120)
def test_client_of_python(case):
    case.expect_ring("server", "client")
    port = echo.start_server(case, echo.python_server(case, "epoll"))
    echo.run_client(case, escript(case, "ask", port, 8))
