"""Servers as Debian packages them, under a real systemd, and a client of another user: by ring with one line in one file.

nginx and apache2 have a master of root and workers of www-data; root starts PostgreSQL by a script that becomes postgres; the unit of
RabbitMQ names its user. `sidestep doctor` says the line to the client's user, and nothing goes by ring before it is written.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
from pathlib import Path

from packages.booted import SOCKET, booted
from packages.world import INCLUDE, Debian
from testkit import wait
from testkit.failure import Failure, check

# In which Debian the cases run.
DEBIAN = Debian("packages-servers-root", f"{INCLUDE},nginx,apache2,postgresql,rabbitmq-server,python3-pika,curl")
UNITS = ("nginx.service", "apache2.service", "postgresql.service", "rabbitmq-server.service")
CLIENT = "alice"
LIBRARY = "/usr/lib/sidestep/libsidestep.so"
DROP_IN = "/usr/lib/sidestep/rings.conf"
CONFIG = "etc/sidestep/config.toml"
# On a busy machine reads and writes follow each other too slowly to be worth a ring, which is not what is tested here.
ALWAYS = ("SIDESTEP_UPGRADE_AFTER", "8ops")
# RabbitMQ takes its time on a busy machine.
START_SECONDS = 240
RING_SECONDS = 90
MIB = 1 << 20


def test_nginx_and_a_client_of_another_user_go_by_ring(world):
    over_http(world, "nginx")


def test_apache2_and_a_client_of_another_user_go_by_ring(world):
    over_http(world, "apache2")


def over_http(world, name):
    body, times = os.urandom(4 * MIB), 16
    with prepared(world) as there:
        (there.root / "var/www/html/body").write_bytes(body)
        enrol(there, f"{name}.service")
        with running(world, there, f"{name}.service") as machine:
            # All on one connection.
            command = f"sidestep run curl -sSf 'http://127.0.0.1/body?[1-{times}]' | sha256sum"
            by_ring(machine, name, f"{name}.service", "www-data", command, body * times)


def test_postgresql_and_a_client_of_another_user_go_by_ring(world):
    with prepared(world) as there:
        version = next((there.root / "etc/postgresql").iterdir()).name
        cluster, unit = there.root / "etc/postgresql" / version / "main", f"postgresql@{version}-main.service"
        with open(cluster / "environment", "a") as file:
            file.write(f"\nLD_PRELOAD = '{LIBRARY}'\nSIDESTEP_BROKER = '{SOCKET}'\n{ALWAYS[0]} = '{ALWAYS[1]}'\n")
        with running(world, there, unit, "postgresql.service") as machine:
            create = f"CREATE ROLE {CLIENT} LOGIN PASSWORD '{CLIENT}'"
            machine.run(*of_user("postgres"), "psql", "-Xqc", create)
            select = "SELECT repeat('sidestep', 131072) FROM generate_series(1, 64)"
            command = (f"PGPASSWORD={CLIENT} sidestep run psql -XAt --host=127.0.0.1 --username={CLIENT} "
                       f'--command="{select}" postgres | sha256sum')
            rows = (b"sidestep" * 131072 + b"\n") * 64
            by_ring(machine, f"/usr/lib/postgresql/{version}/bin/postgres", unit, "postgres", command, rows)


def test_rabbitmq_and_a_client_of_another_user_go_by_ring(world):
    count, unit = 16, "rabbitmq-server.service"
    with prepared(world) as there:
        shutil.copy(Path(__file__).parent / "peers" / "messages.py", there.root / "srv")
        # The node's name must have an address, and this machine has no name server.
        (there.root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
        with open(there.root / "etc/rabbitmq/rabbitmq-env.conf", "a") as file:
            file.write("\nNODENAME=rabbit@localhost\n")
        enrol(there, unit)
        with running(world, there, unit) as machine:
            command = f"sidestep run python3 /srv/messages.py {count} {MIB}"
            messages = b"".join(hashlib.shake_128(bytes([number])).digest(MIB) for number in range(count))
            by_ring(machine, "rabbitmq-server", unit, "rabbitmq", command, messages)


# --- the machine ------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def prepared(world):
    with world.installation(DEBIAN) as there:
        there.install(world.debs)
        there.run("useradd", CLIENT)
        yield there


def enrol(there, unit):
    """As docs/CONFIG.md says."""
    directory = there.root / "etc/systemd/system" / f"{unit}.d"
    directory.mkdir(parents=True)
    (directory / "sidestep.conf").symlink_to(DROP_IN)
    (directory / "test.conf").write_text(f"[Service]\nEnvironment={'='.join(ALWAYS)}\n")


@contextlib.contextmanager
def running(world, there, unit, started=None):
    """Booted with this one of the servers. `started`: the unit that pulls it in, if that is another one."""
    for other in set(UNITS) - {started or unit}:
        (there.root / "etc/systemd/system" / other).symlink_to("/dev/null")
    with booted(world, there) as machine:
        wait.until(lambda: is_up(machine, unit), f"{unit} to be up", START_SECONDS)
        yield machine


def is_up(machine, unit):
    state = machine.state(unit)
    if state == "failed":
        raise Failure(machine.run("sh", "-c", f"systemctl status --no-pager --full '{unit}' || true"))
    return state == "active"


def of_user(name):
    return ("setpriv", f"--reuid={name}", f"--regid={name}", "--clear-groups", "env", "HOME=/tmp")


# --- what goes by ring ------------------------------------------------------------------------------------------

def by_ring(machine, program, unit, user, command, expected):
    """`command`: what the client runs; prints the digest of the bytes that came, which are to be `expected`."""
    uids = sorted(int(machine.run("id", "-u", name)) for name in (user, CLIENT))

    def carried():
        """How many bytes of an exchange went by ring."""
        before = status(machine)["totals"]["ring_rx"]
        said = as_client(machine, command).split()
        check(said[:1] == [hashlib.sha256(expected).hexdigest()], f"other bytes came from {unit}: {said}")
        return status(machine)["totals"]["ring_rx"] - before

    def refused():
        check(carried() < len(expected) // 2, f"bytes of {unit} went by ring although no line allows it")
        return uids in [pair["uids"] for pair in status(machine)["strangers"]]

    wait.until(refused, f"{unit} and the client to be refused a ring", RING_SECONDS)
    line = proposed(machine, program)
    check(line == f'allow = [{{services = ["{unit}"], uids = [{client_uid(machine)}]}}]', f"the doctor proposes {line}")
    with open(machine.root / CONFIG, "a") as file:
        file.write(f"\n{line}\n")
    machine.run("systemctl", "try-reload-or-restart", "sidestepd")
    # The first connections of a process may have ended before it has joined.
    wait.until(lambda: carried() >= len(expected) // 2, f"most bytes of {unit} to go by ring", RING_SECONDS)


def proposed(machine, program):
    """The line that the doctor names to the client's user."""
    report = json.loads(as_client(machine, f"sidestep doctor --json {program} || true"))
    [users] = [one for one in report["program"] if one["name"] == "users"]
    found = re.search(r"root must write the line `([^`]*)` into /etc/sidestep/config\.toml", users.get("advice") or "")
    check(found, f"the doctor names no line: {users}")
    return found.group(1)


def client_uid(machine):
    return int(machine.run("id", "-u", CLIENT))


def as_client(machine, command):
    return machine.run(*of_user(CLIENT), f"SIDESTEP_BROKER={SOCKET}", "=".join(ALWAYS), "sh", "-ec", command)


def status(machine):
    return json.loads(machine.run("sidestep", "status", "--json", "--address", SOCKET))
