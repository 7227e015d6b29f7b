"""The files of a package, by their paths."""

import gzip
import os
from collections import namedtuple

# content: bytes, a Link, or None for a directory.
File = namedtuple("File", "content mode")
# A symbolic link; only the image has some.
Link = namedtuple("Link", "target")


class Tree:
    def __init__(self):
        self.files = {}

    def file(self, path, content, mode=0o644):
        self.files[path.lstrip("/")] = File(content, mode)

    def copy(self, path, source, mode=0o644):
        self.file(path, source.read_bytes(), mode)

    def program(self, path, source):
        self.copy(path, source, 0o755)

    def zipped(self, path, content):
        """Without a time and a name in it, so that equal content makes an equal file."""
        self.file(f"{path}.gz", gzip.compress(content, 9, mtime=0))

    def directory(self, path, mode=0o755):
        self.files[path.strip("/")] = File(None, mode)

    def link(self, path, target):
        self.files[path] = File(Link(target), 0o755)

    def with_parents(self):
        """All paths in order, each directory before what is in it."""
        found = dict(self.files)
        for path in self.files:
            parts = path.split("/")[:-1]
            for count in range(1, len(parts) + 1):
                found.setdefault("/".join(parts[:count]), File(None, 0o755))
        return sorted(found.items())

    def write(self, root, seconds):
        """Below `root`, all of it of this time."""
        for path, (content, mode) in self.with_parents():
            target = root / path
            if content is None:
                target.mkdir(exist_ok=True)
            else:
                target.write_bytes(content)
            target.chmod(mode)
        for path, _ in reversed(self.with_parents()):
            os.utime(root / path, (seconds, seconds))

    def size(self):
        """In KiB, as dpkg counts it: a directory is 1."""
        return sum(1 if content is None else -(-len(content) // 1024) for _, (content, _) in self.with_parents())
