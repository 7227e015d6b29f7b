"""Pods: a network namespace and a cgroup each."""

import sys
from pathlib import Path

from capture import tasks
from testkit import wait
from testkit.namespaces import Namespace, enter, link
from testkit.process import Process

# One that every user can read, if there is one.
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
PEERS = Path(__file__).resolve().parent / "peers"
START_SECONDS = 30
PREFIX_LENGTH = {4: 24, 6: 64}
LISTEN = "0A"


class Pod:
    """`ip`: its addresses, by family."""

    def __init__(self, world, name, number):
        self.world = world
        self.name = name
        self.ip = {4: f"10.244.0.{number}", 6: f"fd00:244::{number:x}"}
        self.namespace = Namespace(f"{world.name}-{name}")
        self.cgroup = world.cgroup.child(name)
        self.processes = []
        self.tasks = []

    def connect(self, node, gateways):
        port = f"p-{self.name}"
        link(node, port, self.namespace, "eth0")
        node.ip(f"link set {port} master br0")
        for family, address in self.ip.items():
            nodad = "nodad" if family == 6 else ""
            self.namespace.ip(f"addr add {address}/{PREFIX_LENGTH[family]} dev eth0 {nodad}")
            self.namespace.ip(f"-{family} route add default via {gateways[family]}")

    # --- functions --------------------------------------------------------------------------------------------------

    def run(self, function, *args, owner=tasks.PROGRAM, seconds=tasks.SECONDS):
        """What the function returns in a process of the pod."""
        return self.start(function, *args, owner=owner).result(seconds)

    def start(self, function, *args, owner=tasks.PROGRAM):
        task = tasks.Task(self.enter, owner, function, args)
        self.tasks.append(task)
        return task

    def start_outside(self, function, *args):
        """In the pod's namespace, but not in its cgroup."""
        return tasks.Task(lambda: enter(self.namespace.path), tasks.PROGRAM, function, args)

    def enter(self):
        self.cgroup.enter()
        enter(self.namespace.path)

    # --- programs ---------------------------------------------------------------------------------------------------

    def spawn(self, role, command, owner=tasks.PROGRAM):
        user, group = owner
        command = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", *command]
        log = self.world.directory / f"{self.name}-{role}.log"
        process = Process(f"{self.world.name}-{self.name}-{role}", self.cgroup.around(self.namespace.around(command)),
                          log, self.world.env)
        self.processes.append(process)
        return process

    def program(self, *ports):
        """A program that greets whoever comes, and says everything back: peers/program.py."""
        process = self.peer("program.py", self.name, *ports)
        self.wait_listening(process, *ports)
        return process

    def peer(self, file, *words, owner=tasks.PROGRAM, role=None):
        return self.spawn(role or file.removesuffix(".py"), [PYTHON, PEERS / file, *words], owner)

    def wait_listening(self, process, *ports, families=(4, 6), each=1):
        def listens():
            return all(listeners(process.pid, family).count(port) >= each for family in families for port in ports)
        wait.until(listens, f"{process.role} to listen at {ports}", START_SECONDS, process.must_run)

    def wait_listening_task(self, task, port, family):
        wait.until(lambda: port in listeners(task.pid, family), f"{task.name} to listen at {port}", START_SECONDS)

    def end(self, process):
        process.stop()
        self.processes.remove(process)

    def kill(self, process):
        process.destroy()
        self.processes.remove(process)

    def stop(self):
        for task in self.tasks:
            if task in tasks.running:
                task.end()
        for process in reversed(self.processes):
            process.destroy()
        self.run(do_not_wait_for_the_dead, owner=tasks.ROOT)
        # A namespace goes when it likes; the name of the cable is free at once.
        self.world.node.ip(f"link del p-{self.name}")
        self.namespace.remove()
        self.cgroup.remove()


def do_not_wait_for_the_dead():
    """Connections whose programs have ended, and whose peers cannot be reached any more, would keep the namespace for
    minutes."""
    Path("/proc/sys/net/ipv4/tcp_orphan_retries").write_text("1")


def listeners(pid, family):
    """Ports at which somebody listens in the namespace of that process, one for each socket."""
    return local_ports(pid, family, {LISTEN})


def local_ports(pid, family, states):
    """Of the sockets in these states."""
    name = "tcp" if family == 4 else "tcp6"
    try:
        lines = Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    except OSError:
        return []
    fields = [line.split() for line in lines]
    return [int(one[1].rpartition(":")[2], 16) for one in fields if one[3] in states]
