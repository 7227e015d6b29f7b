"""The images of these tests, and the programs in them."""

from pathlib import Path

from cluster.images import Image
from testkit.commands import run
from testkit.paths import program

PEERS = Path(__file__).resolve().parent / "peers"
LIBRARY_OF_ITS_OWN = "/lib/x86_64-linux-gnu/libm.so.6"
LOADER = "/lib64/ld-linux-x86-64.so.2"
# A name of the same length that no C library's loader has.
OTHER_LOADER = "/lib64/ld-other-x86-64.so.2"


class Catalog:
    """`directory`: for what is compiled."""

    def __init__(self, directory):
        pause = self.compile(directory, "pause", "gcc", "-static")
        musl = self.compile(directory, "asker", "musl-gcc")
        self.pause = Image("pause")
        self.pause.add("pause", pause)
        # The runtime starts what the image names.
        self.pause.entrypoint = ["/pause"]
        self.redis = Image("redis")
        for name in ("redis-server", "redis-benchmark"):
            self.redis.add_program(f"bin/{name}", program(name))
        self.redis.add_program("bin/sleep", "/bin/sleep")
        self.redis.add_program("bin/setuid", "/bin/sleep", mode=0o4755)
        self.redis.add("bin/pause", pause)
        self.add_other_libc(self.redis)
        self.redis.add(LIBRARY_OF_ITS_OWN.lstrip("/"), Path(LIBRARY_OF_ITS_OWN).resolve())
        self.musl = Image("musl")
        self.musl.add("bin/asker", musl)
        self.musl.add("lib/ld-musl-x86_64.so.1", Path("/lib/ld-musl-x86_64.so.1").resolve())
        self.all = (self.pause, self.redis, self.musl)

    @staticmethod
    def add_other_libc(image):
        """A program that runs by a loader of which nobody knows the C library: its file names another one, which is there."""
        image.add(OTHER_LOADER.lstrip("/"), Path(LOADER).resolve())
        content = Path("/bin/sleep").read_bytes()
        image.files["bin/other-libc"] = (content.replace(LOADER.encode(), OTHER_LOADER.encode(), 1), 0o755)

    @staticmethod
    def compile(directory, name, compiler, *options):
        output = directory / name
        run(compiler, "-O1", "-Wall", "-Wextra", "-Werror", *options, PEERS / f"{name}.c", "-o", output)
        return output
