"""Programs of others by stacks at both ends. Every byte is compared."""

import json
import sys

from apps.support import echo, files, java, nginx_config
from hosts.cases import must_have_taken
from hosts.mesh import reaches
from hosts.registry import SLOW, case
from hosts.world import PORT
from testkit import paths
from testkit.commands import run
from testkit.failure import check
from testkit.wait import until

CONNECTIONS = 6
LEAST = 4  # of these each stack must have taken
TRIPS = 1500  # of each connection, before a long stream
REQUESTS = 12_000
SIZE = 1449
KEYS = 3000

NGINX = """
{head}
daemon off;
http {{
    {common}
    server {{
        listen {address}:{port};
        root {site};
    }}
}}
"""


def with_stacks(hosts, work, least):
    """The stacks carry long streams, too."""
    for host in (hosts.client, hosts.server):
        host.start_stack("--longest-message", "1000000")
    work()
    for host in (hosts.client, hosts.server):
        must_have_taken(host, least)


def said(hosts, words):
    """What a client prints that ends well."""
    client = hosts.client.program("client", words)
    client.wait(90)
    return client.output().strip()


def echoed(hosts, server, client):
    """`client`: the words of the client of a port."""
    serving = hosts.server.program("server", server)
    port = int(serving.wait_output(echo.LISTENING, 30).group(1))
    result = json.loads(said(hosts, client(port)).splitlines()[-1])
    check(result["connections"] == CONNECTIONS and result["bytes"] > 0, f"the client checked nothing: {result}")
    serving.destroy()


def served(hosts, words):
    """A server of these words, which listens at PORT."""
    serving = hosts.server.program("server", words)
    until(lambda: reaches(hosts.client, hosts.server.addresses[4]), "the server to listen", 20, serving.must_run)
    return serving


@case(part=SLOW)
def java_by_stack(hosts, seed):
    """Blocking sockets, and a server with a Selector; Java's sockets are those of IPv6, also for IPv4. `seed` changes nothing."""
    classes = hosts.directory / "classes"
    run(*java.compilation(classes, "EchoServer", "EchoClient"))

    def work():
        for kind, family in (("blocking", 4), ("nio", 6)):
            address = hosts.server.addresses[family]
            asks = [*java.command(classes, "EchoClient"), "blocking"]
            echoed(hosts, [*java.command(classes, "EchoServer"), kind, address],
                   lambda port, asks=asks, address=address: [*asks, port, CONNECTIONS, address, TRIPS])
    with_stacks(hosts, work, 2 * LEAST)


@case(part=SLOW)
def node_by_stack(hosts, seed):
    """`seed` changes nothing."""
    address = hosts.server.addresses[4]
    server, client = ([paths.program("node"), paths.PEERS / name] for name in ("echo_server.js", "echo_client.js"))
    with_stacks(hosts, lambda: echoed(hosts, [*server, address], lambda port: [*client, port, CONNECTIONS, address, TRIPS]), LEAST)


@case(part=SLOW)
def redis_by_stack(hosts, seed):
    """`seed` changes nothing."""
    address = hosts.server.addresses[4]

    def work():
        serving = served(hosts, [paths.program("redis-server"), "--port", PORT, "--bind", address, "--protected-mode", "no", "--save", "",
                                 "--dir", hosts.directory])
        # One connection each.
        for action in ("fill", *["verify"] * 4):
            done = said(hosts, [sys.executable, paths.PEERS / "redis_check.py", action, "--host", address, "--port", PORT,
                                "--count", KEYS])
            check(json.loads(done.splitlines()[-1])["done"] == KEYS, f"{action}: {done}")
        serving.destroy()
    with_stacks(hosts, work, 2)


@case
def curl_and_nginx_by_stack(hosts, seed):
    """Many requests on one kept connection. `seed` changes nothing."""
    tmp, address = hosts.directory, hosts.server.addresses[4]
    site, bodies, config = tmp / "site", tmp / "bodies", tmp / "nginx.conf"
    for directory in (site, bodies):
        directory.mkdir()
    [name] = files.make(site, (SIZE,))
    config.write_text(NGINX.format(head=nginx_config.head(tmp, "nginx", 1), common=nginx_config.common(tmp, "nginx"),
                                   address=address, port=PORT, site=site))

    def work():
        serving = served(hosts, nginx_config.command(tmp, "nginx", config))
        connects = said(hosts, [paths.program("curl"), "-sS", "--fail", "--noproxy", "*", "--write-out", "%{num_connects}\\n",
                                "-o", bodies / "#1",
                                f"http://{address}:{PORT}/{name}?[1-{REQUESTS}]"])
        check(sum(map(int, connects.splitlines())) == 1, "curl has not kept its connection")
        serving.destroy()
    with_stacks(hosts, work, 1)
    wrong = [number for number in range(1, REQUESTS + 1) if (bodies / str(number)).read_bytes() != files.content(SIZE)]
    check(not wrong, f"{len(wrong)} bodies are others, the first one is the answer to request {wrong[:1]}")
