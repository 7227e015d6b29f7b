"""Connections that are taken and given back, over and over, under load: every byte of both streams is compared at both ends."""

from hosts.registry import MORE, case
from hosts.scene import PATIENCE, Scene
from testkit.failure import Failure
from testkit.wait import until

FEW = 8  # connections at a time, at least


class Switching(Scene):
    def turn(self, host):
        """Gives back what the stack carries, or a part of it, as an operator wants it; and has it carried again."""
        # Each switch doubles the time until a connection is carried again. In the end others are carried sooner.
        carried = self.must_carry(host, FEW, renewed=self.load.connections // 4)
        names, chosen = self.detach(host, carried)
        self.load.mark()
        until(lambda: not chosen & {one["id"] for one in self.by_stack(host)}, "the connections to be given back", PATIENCE)
        self.load.recovered()
        for words in names:
            host.command("attach", *words)

    def detach(self, host, carried):
        """All of the host, those of one program, or single ones. Returns how, and which those are."""
        how = self.chosen.randrange(3)
        if how == 0:
            names, chosen = [["--all"]], carried
        elif how == 1:
            program = self.chosen.choice(sorted({pid for one in carried for pid in one["pids"]} - {host.worker()}))
            names, chosen = [["--pid", str(program)]], [one for one in carried if program in one["pids"]]
        else:
            chosen = self.chosen.sample(carried, FEW)
            names = [[one["id"]] for one in chosen]
        for words in names:
            host.command("detach", *words)
        return names, {one["id"] for one in chosen}

    def returned(self):
        """How many connections the stacks have given back so far."""
        stacks = [one for host in self.both for one in host.status()["processes"] if one["exe"].endswith("/sidestep-stack")]
        return sum(one["returned"] for one in stacks)


def switch(hosts, seed, connections, switches):
    scene = Switching(hosts, seed, connections)
    while scene.returned() < switches:
        scene.turn(scene.chosen.choice(scene.both))
    taken = scene.end()
    print(f"figure: connections were taken, and given back, {taken} times", flush=True)
    if taken < switches:
        raise Failure(f"the stacks have taken and given back only {taken} connections")


@case
def forced_switches(hosts, seed):
    switch(hosts, seed, 64, 100)


@case(part=MORE)
def many_switches(hosts, seed):
    switch(hosts, seed, 256, 1000)


@case
def programs_killed_while_the_kernel_carries(hosts, seed):
    """Each peer learns it, although the stack has a copy of the socket, and would carry the connection again later."""
    scene = Switching(hosts, seed, 32)
    for host, kill in ((hosts.client, scene.load.kill_client), (hosts.server, scene.load.kill_server)):
        scene.must_carry(host, FEW, renewed=FEW)
        host.command("detach", "--all")
        until(lambda host=host: not scene.by_stack(host), "all connections to be given back", PATIENCE)
        scene.load.mark()
        kill()
        host.command("attach", "--all")
        scene.load.recovered()
    scene.end()
