"""Directory trees with files of many kinds, and their comparison."""

import hashlib
import os
import stat

from apps.support import files

SMALL_FILES = 300


def make(directory, large=6 * 1024 * 1024 + 1):
    """Many small files in directories, the sizes where something changes, a large file, links, odd names and modes."""
    directory.mkdir()
    files.make(directory, (*files.SIZES, large))
    for number in range(SMALL_FILES):
        below = directory / f"d{number % 7}" / f"e{number % 3}"
        below.mkdir(parents=True, exist_ok=True)
        (below / f"s{number}").write_bytes(files.content(number * 37, seed=number))
    (directory / "odd name\n\u00e4").write_bytes(b"odd")
    (directory / "link").symlink_to("f700")
    (directory / "same").hardlink_to(directory / "f4096")
    (directory / "runs").write_bytes(b"#!/bin/sh\n")
    (directory / "runs").chmod(0o751)
    for number, path in enumerate(sorted(p for p in directory.rglob("*") if p.is_file() and not p.is_symlink())):
        os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))


def change(directory):
    """Changes a tree so that a copy of before needs parts of files, whole files, and less of them."""
    large = max((p for p in directory.iterdir() if p.is_file()), key=lambda p: p.stat().st_size)
    content = large.read_bytes()
    middle = len(content) // 2
    large.write_bytes(content[:middle] + b"a few bytes more" + content[middle + 3:])
    (directory / "new").write_bytes(files.content(70_001, seed=3))
    for path in sorted((directory / "d1").rglob("s*")):
        path.unlink()


def listing(directory):
    """What counts of a tree: for each path its kind, mode, time, target or checksum."""
    return {str(path.relative_to(directory)): _facts(path) for path in sorted(directory.rglob("*"))}


def _facts(path):
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return "link", os.readlink(path)
    if stat.S_ISDIR(status.st_mode):
        return "directory", stat.S_IMODE(status.st_mode)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return "file", stat.S_IMODE(status.st_mode), int(status.st_mtime), status.st_size, digest


def differences(one, other):
    """The paths at which two trees differ, at most ten of them."""
    first, second = listing(one), listing(other)
    return [path for path in sorted(first.keys() | second.keys()) if first.get(path) != second.get(path)][:10]
