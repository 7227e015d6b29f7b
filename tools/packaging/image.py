"""The image: an OCI layout with the programs, the libraries that they need, and nothing else. No shell, no package manager. Equal
programs make an equal image: the files are sorted, belong to root, and have the time of the last commit."""

import gzip
import hashlib
import io
import json
import re
import shutil
import tarfile
from datetime import UTC, datetime
from pathlib import Path

from . import notices
from .packages import DIST
from .programs import LIBRARY, ROOT, Missing, epoch, run
from .tree import Link, Tree

PROGRAMS = ("sidestep", "sidestepd", "sidestep-agent", "sidestep-stack")
# Parts of the chart that a build may lack.
OF_PODS = ("sidestep-nri", "sidestep-webhook", "sidestep-cni")
ROOTS = ("sidestep-cli", "sidestep-broker", "sidestep-preload", "sidestep-agent", "sidestep-stack", "sidestep-nri", "sidestep-webhook",
         "sidestep-cni")
LARGEST = 60_000_000
PASSWD = b"root:x:0:0:root:/:/usr/bin/sidestep\nnobody:x:65534:65534:nobody:/:/usr/bin/sidestep\n"
GROUP = b"root:x:0:\nnogroup:x:65534:\n"
# glibc finds hosts in /etc/hosts, which the kubelet writes, and by DNS.
NSSWITCH = b"passwd: files\ngroup: files\nhosts: files dns\n"
# Media types of the OCI image specification.
INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def tree_of(programs):
    tree = Tree()
    present = [*PROGRAMS, *(name for name in OF_PODS if programs.has(name))]
    for name in present:
        tree.program(f"usr/bin/{name}", programs.stripped(name))
    tree.copy(f"usr/lib/sidestep/{LIBRARY}", programs.stripped(LIBRARY))
    for path in sorted(shared({programs.built(name) for name in present})):
        # Where the programs look for them, whatever link led there.
        tree.program(path, Path(path).resolve())
        add_copyright(tree, path)
    tree.copy("etc/sidestep/config.toml", DIST / "config" / "config.toml")
    for name, content in (("passwd", PASSWD), ("group", GROUP), ("nsswitch.conf", NSSWITCH)):
        tree.file(f"etc/{name}", content)
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        tree.copy(f"usr/share/doc/sidestep/{name}", ROOT / name)
    tree.zipped("usr/share/doc/sidestep/THIRD-PARTY", notices.notices(ROOTS))
    for name in ("dev", "proc", "run", "sys"):
        tree.directory(name)
    tree.directory("tmp", 0o1777)
    # Runtimes name network namespaces by /var/run.
    tree.link("var/run", "/run")
    return tree


def shared(files):
    """Paths of the libraries that these are linked with, and of the loader."""
    found = set()
    for file in files:
        said = run("ldd", file).decode()
        found |= {path for path in re.findall(r"(/\S+) \(0x", said)}
    return found


def add_copyright(tree, path):
    """Debian's, of the package that has the library. A merged /usr has each file under two names."""
    names = [path, str(Path(path).resolve()), f"/usr{path}", path.removeprefix("/usr")]
    for name in names:
        try:
            package = run("dpkg", "--search", name).decode().split(":")[0]
        except Missing:  # the package knows the file by another name
            continue
        tree.copy(f"usr/share/doc/{package}/copyright", Path("/usr/share/doc") / package / "copyright")
        return
    raise FileNotFoundError(f"{path} is of no Debian package: its licence is not known")


def layer(tree, seconds):
    """An uncompressed tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, (content, mode) in tree.with_parents():
            entry = tarfile.TarInfo(path)
            entry.mtime, entry.mode = seconds, mode
            if content is None:
                entry.type = tarfile.DIRTYPE
                archive.addfile(entry)
            elif isinstance(content, Link):
                entry.type, entry.linkname = tarfile.SYMTYPE, content.target
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


class Layout:
    """A directory of blobs by their digests."""

    def __init__(self, directory):
        self.blobs = directory / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)

    def add(self, content, media_type):
        """Returns the descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        (self.blobs / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def add_json(self, value, media_type):
        return self.add(json.dumps(value, sort_keys=True).encode(), media_type)


def config_of(tar, seconds):
    created = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "architecture": "amd64", "os": "linux", "created": created,
        "config": {"Entrypoint": ["/usr/bin/sidestep"], "Cmd": ["--help"], "Env": ["PATH=/usr/bin"], "WorkingDir": "/",
                   "Labels": {"org.opencontainers.image.licenses": "MIT OR Apache-2.0",
                              "org.opencontainers.image.title": "sidestep"}},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}"]},
        "history": [{"created": created, "created_by": "tools/package image"}],
    }


def build(programs, output, version):
    """Writes the layout, and the same as one file for `ctr images import` and `podman load`. Returns that file."""
    seconds = epoch()
    tar = layer(tree_of(programs), seconds)
    layout_directory = output / "layout"
    shutil.rmtree(layout_directory, ignore_errors=True)
    layout = Layout(layout_directory)
    manifest = layout.add_json({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": layout.add_json(config_of(tar, seconds), CONFIG),
        "layers": [layout.add(gzip.compress(tar, 9, mtime=0), LAYER)],
    }, MANIFEST)
    named = {**manifest, "annotations": {"org.opencontainers.image.ref.name": version,
                                         "io.containerd.image.name": f"localhost/sidestep:{version}"}}
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]}
    (layout_directory / "index.json").write_text(json.dumps(index, sort_keys=True))
    (layout_directory / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    return one_file(layout_directory, output / f"sidestep-{version}.oci.tar", seconds)


def one_file(directory, file, seconds):
    tree = Tree()
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        tree.copy(str(path.relative_to(directory)), path)
    file.write_bytes(layer(tree, seconds))
    if file.stat().st_size > LARGEST:
        raise ValueError(f"{file} has {file.stat().st_size} bytes, and may have {LARGEST}")
    return file
