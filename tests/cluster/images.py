"""Images made of files of this machine: archives of one layer, as `ctr images import` takes them."""

import hashlib
import io
import json
import re
import tarfile
from pathlib import Path

from testkit.commands import run

ROOT_DIRECTORIES = ("proc", "sys", "dev", "etc", "tmp", "run", "var")


class Image:
    """Files by their paths in the image, each with a mode."""

    def __init__(self, name, env=("PATH=/bin",)):
        self.name = f"sidestep.test/{name}:1"
        # By which pods find it.
        self.names = [self.name]
        self.env = list(env)
        self.entrypoint, self.command = [], []
        self.user = ""
        self.files = {}

    def add(self, path, source, mode=0o755):
        self.files[path] = (Path(source).read_bytes(), mode)

    def add_text(self, path, text, mode=0o755):
        self.files[path] = (text.encode(), mode)

    def add_program(self, path, source, mode=0o755):
        """A program with its loader and its libraries."""
        self.add(path, source, mode)
        for library in re.findall(r"(/[^\s()]+)", run("ldd", source)):
            self.add(library.lstrip("/"), Path(library).resolve())

    def write(self, path):
        layer = self.layer()
        digest = f"sha256:{hashlib.sha256(layer).hexdigest()}"
        config = json.dumps({"architecture": "amd64", "os": "linux", "config": {
                                 "Env": self.env, "Entrypoint": self.entrypoint, "Cmd": self.command, "User": self.user},
                             "rootfs": {"type": "layers", "diff_ids": [digest]}}).encode()
        name = f"{hashlib.sha256(config).hexdigest()}.json"
        manifest = [{"Config": name, "RepoTags": self.names, "Layers": ["layer.tar"]}]
        with tarfile.open(path, "w") as archive:
            add(archive, "layer.tar", layer)
            add(archive, name, config)
            add(archive, "manifest.json", json.dumps(manifest).encode())

    def layer(self):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            directories = {str(parent) for path in self.files for parent in Path(path).parents} | set(ROOT_DIRECTORIES)
            for directory in sorted(directories - {"."}):
                entry = tarfile.TarInfo(directory)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
            for path, (content, mode) in self.files.items():
                add(archive, path, content, mode)
        return buffer.getvalue()


def add(archive, name, content, mode=0o644):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
