"""The injector (inject.c) as Python sees it: which call is to fail, how, and what has become of it."""

import errno
import mmap
import struct
import subprocess
from pathlib import Path

HEADER = struct.Struct("=IIQ")           # armed, unused, injected
NUMBERS = 512                            # as in inject.c
ALWAYS = 1 << 62
LIBRARY = "libsidestep.so"
ANYBODY = "*"


def build(directory):
    """Compiles the injector; returns the program's path."""
    program = directory / "inject"
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-o", program,
                    Path(__file__).with_name("inject.c")], check=True)
    return program


class Injection:
    """One way to fail, and its control file. `error` None: nothing fails, calls are counted."""

    def __init__(self, program, path, number=-1, error=None, first=1, count=ALWAYS, armed=True,
                 fds="any", slow=-1, whose=LIBRARY):
        self.program = program
        self.path = path
        self.arguments = [number, getattr(errno, error) if error else 0, first, count if error else 0, fds, slow, whose]
        size = HEADER.size + NUMBERS * 8
        path.write_bytes(HEADER.pack(int(armed), 0, 0).ljust(size, b"\0"))
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), size)

    def command(self, argv):
        return [str(word) for word in (self.program, self.path, *self.arguments, *argv)]

    def arm(self):
        self.memory[0:4] = struct.pack("=I", 1)

    def disarm(self):
        self.memory[0:4] = struct.pack("=I", 0)

    @property
    def injected(self):
        return HEADER.unpack_from(self.memory)[2]

    def counts(self):
        """How often each call was made, by number."""
        values = struct.unpack_from(f"={NUMBERS}Q", self.memory, HEADER.size)
        return {number: value for number, value in enumerate(values) if value}

    def close(self):
        self.memory.close()
