"""OpenSSH: a server with privilege separation on a port of its own, commands, scp and sftp both ways, forwarding.

sshd starts itself anew for each connection, or forks (-r); before the login a process without rights and with a
seccomp filter speaks to the client, after it one with the rights of the user, and between the two the connection
changes hands. The client makes the connection itself.
"""

import getpass
import hashlib
import os
import shlex
from pathlib import Path

from apps.support import echo, files, versions
from apps.support.marks import slow
from testkit import net, paths
from testkit.failure import check

FILE_BYTES = 12 * 1024 * 1024 + 7
PRIVILEGE_SEPARATION_DIRECTORY = Path("/run/sshd")

SERVER_CONFIG = """
ListenAddress {host}:{port}
HostKey {tmp}/host_key
PidFile none
AuthorizedKeysFile {tmp}/client_key.pub
PubkeyAuthentication yes
PasswordAuthentication no
UsePAM no
StrictModes no
PermitRootLogin yes
Subsystem sftp internal-sftp
"""

CLIENT_CONFIG = """
Host *
    HostName {host}
    Port {port}
    User {user}
    IdentityFile {tmp}/client_key
    IdentitiesOnly yes
    UserKnownHostsFile {tmp}/known_hosts
    StrictHostKeyChecking yes
    BatchMode yes
    ConnectTimeout 20
"""


def version():
    return versions.of(r"(OpenSSH_[^ ,]+)", paths.program("ssh"), "-V")


class Server:
    def __init__(self, case, *options, preload=True):
        self.case = case
        self.port = net.free_port()
        if os.geteuid() == 0:
            PRIVILEGE_SEPARATION_DIRECTORY.mkdir(mode=0o755, exist_ok=True)
        names = {"host": net.LOOPBACK, "port": self.port, "tmp": case.tmp, "user": getpass.getuser()}
        for name, text in (("sshd_config", SERVER_CONFIG), ("ssh_config", CLIENT_CONFIG)):
            (case.tmp / name).write_text(text.format(**names))
        for key in ("host_key", "client_key"):
            case.run("ssh-keygen", [paths.program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", case.tmp / key],
                     preload=False)
        host_key = (case.tmp / "host_key.pub").read_text()
        (case.tmp / "known_hosts").write_text(f"[{net.LOOPBACK}]:{self.port} {host_key}")
        self.process = case.start("sshd", [paths.program("sshd"), "-D", "-e", "-f", case.tmp / "sshd_config", *options],
                                  preload=preload)
        net.wait_port(self.port, self.process)

    def command(self, program, *words):
        return [paths.program(program), "-F", self.case.tmp / "ssh_config", *words]

    def run(self, program, *words, **options):
        return self.case.run("ssh", self.command(program, *words), seconds=60, **options)


def check_file(path, content):
    got = path.read_bytes()
    check(hashlib.sha256(got).digest() == hashlib.sha256(content).digest(),
          f"{path.name}: {len(got)} bytes, not the {len(content)} that were sent")


def copy_both_ways(case, server):
    """scp to the server and back, first by sftp as it does by default, then by its old protocol."""
    content = files.content(FILE_BYTES)
    source = case.tmp / "source"
    source.write_bytes(content)
    for number, protocol in enumerate(("-s", "-O")):
        there, back = case.tmp / f"there{number}", case.tmp / f"back{number}"
        server.run("scp", "-q", protocol, source, f"server:{there}")
        check_file(there, content)
        server.run("scp", "-q", protocol, f"server:{there}", back)
        check_file(back, content)


@slow(60)
def test_scp(case):
    """scp both ways through a server that starts itself anew for each connection."""
    case.expect_seen("ssh")
    copy_both_ways(case, Server(case))


@slow(60)
def test_scp_with_forking_server(case):
    """scp both ways through a server that only forks (-r)."""
    case.expect_seen("ssh", "sshd")
    copy_both_ways(case, Server(case, "-r"))


@slow(60)
def test_scp_with_server_without_library(case):
    """scp both ways by preloaded clients, the server is not preloaded: all by kernel."""
    case.expect_kernel("ssh")
    copy_both_ways(case, Server(case, preload=False))


@slow(60)
def test_command_with_both_streams(case):
    """A command on the server gets megabytes at its standard input and gives them back at its standard output."""
    case.expect_seen("ssh")
    content = files.content(FILE_BYTES)
    source, back = case.tmp / "source", case.tmp / "back"
    source.write_bytes(content)
    server = Server(case)
    words = " ".join(map(shlex.quote, map(str, server.command("ssh", "server", "cat"))))
    case.run("ssh", ["sh", "-c", f"exec {words} < {source} > {back}"], seconds=60)
    check_file(back, content)


@slow(90)
def test_forwarded_connections(case):
    """Echo connections through a forwarded port: client to ssh and sshd to server may go by ring."""
    case.expect_ring("client", "ssh")
    server, port = Server(case), net.free_port()
    service = echo.start_server(case, echo.python_server(case, "epoll"), "echo-server")
    forward = case.start("ssh", server.command("ssh", "-N", "-L", f"{port}:{net.LOOPBACK}:{service}", "server"))
    net.wait_port(port, forward)
    echo.run_client(case, echo.python_client(case, "epoll", port))
    forward.popen.terminate()
    forward.wait(10, {0, 255})
