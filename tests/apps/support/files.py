"""Files with contents that nothing could produce by accident."""

import random

# Around the sizes where something changes: nothing, one byte, a segment, a page, 64 KiB, more than any buffer.
SIZES = (0, 1, 700, 1449, 4096, 65535, 65536, 100_001, 1_048_577)


def content(size, seed=0):
    """Pseudo-random bytes, the same for the same size and seed."""
    return random.Random(size * 1_000_003 + seed).randbytes(size)


def make(directory, sizes=SIZES):
    """Writes one file for each size and returns their names."""
    names = []
    for size in sizes:
        name = f"f{size}"
        (directory / name).write_bytes(content(size))
        names.append(name)
    return names
