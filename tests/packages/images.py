"""The image: its size, its content, and that its programs run in it as they are."""

import gzip
import hashlib
import io
import json
import re
import tarfile

from testkit.commands import run
from testkit.failure import check

LARGEST = 60_000_000
# Every file of the image: programs, the libraries that they need, what a libc reads, licences.
KNOWN = re.compile(
    r"usr/bin/(sidestepd?|sidestep-(agent|stack|nri|webhook|cni))|usr/lib/sidestep/libsidestep\.so"
    r"|(usr/)?lib(64)?/(x86_64-linux-gnu/)?(ld-linux-x86-64|libc|libm|libgcc_s|libelf|libz|libzstd)\.so\.\d"
    r"|var/run|etc/(passwd|group|nsswitch\.conf|sidestep/config\.toml)"
    r"|usr/share/doc/(sidestep/(LICENSE-(MIT|APACHE)|THIRD-PARTY\.gz)|(libc6|libgcc-s1|libelf1|zlib1g|libzstd1)/copyright)")
SHELLS = ("sh", "bash", "dash", "busybox", "perl", "python3")


def archive(world):
    """The file of the image, and the layer in it."""
    file = next(world.image.glob("*.oci.tar"))
    layout = world.image / "layout"
    index = json.loads((layout / "index.json").read_text())
    manifest = blob(layout, index["manifests"][0])
    config = json.loads(blob(layout, json.loads(manifest)["config"]))
    tar = gzip.decompress(blob(layout, json.loads(manifest)["layers"][0]))
    check(config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(tar).hexdigest()}"], "the layer is not the config's")
    return file, config, tarfile.open(fileobj=io.BytesIO(tar))


def blob(layout, descriptor):
    kind, digest = descriptor["digest"].split(":")
    content = (layout / "blobs" / kind / digest).read_bytes()
    check(hashlib.new(kind, content).hexdigest() == digest and len(content) == descriptor["size"], f"{digest} is another blob")
    return content


def test_it_is_small_and_nothing_else_is_in_it(world):
    file, _, layer = archive(world)
    check(file.stat().st_size < LARGEST, f"the image has {file.stat().st_size} bytes")
    files = [entry for entry in layer if not entry.isdir()]
    unknown = [entry.name for entry in files if not KNOWN.fullmatch(entry.name)]
    check(not unknown, f"nobody knows what for: {unknown}")
    check(not [entry.name for entry in files if entry.name.rsplit("/", 1)[-1] in SHELLS], "there is a shell in it")
    check(all(entry.uid == entry.gid == 0 and not entry.mode & 0o6022 for entry in files), "a file that others may write, or setuid")


def test_equal_programs_make_an_equal_image(world):
    again = world.package("image", world.tmp / "image-again")
    one, other = (next(directory.glob("*.oci.tar")) for directory in (world.image, again))
    check(one.read_bytes() == other.read_bytes(), "two builds differ")


def test_each_program_starts_in_it(world):
    _, config, layer = archive(world)
    root = world.tmp / "image-root"
    layer.extractall(root, filter="fully_trusted")
    for name in sorted(path.name for path in (root / "usr/bin").iterdir()):
        said = run("chroot", root, f"/usr/bin/{name}", "--version", env={})
        check(re.search(r"\d+\.\d+\.\d+", said), f"{name} --version says {said!r}")
    said = run("chroot", root, *config["config"]["Entrypoint"], *config["config"]["Cmd"], env={})
    check("Examples:" in said, f"the entry point says {said!r}")


def test_runc_runs_it(world):
    """As a container: read-only, no capability, no root user."""
    _, config, layer = archive(world)
    bundle = world.tmp / "bundle"
    layer.extractall(bundle / "rootfs", filter="fully_trusted")
    run("runc", "spec", "--bundle", bundle)
    spec = json.loads((bundle / "config.json").read_text())
    process = spec["process"]
    process.update(terminal=False, args=["/usr/bin/sidestep", "reasons"], env=config["config"]["Env"])
    process["user"] = {"uid": 65534, "gid": 65534}
    process["capabilities"] = {name: [] for name in process["capabilities"]}
    spec["root"]["readonly"] = True
    # The test's own group is enough: not every machine lets runc make one.
    spec["linux"].pop("resources", None)
    spec["linux"]["namespaces"] = [one for one in spec["linux"]["namespaces"] if one["type"] != "cgroup"]
    spec["mounts"] = [one for one in spec["mounts"] if one["type"] != "cgroup"]
    (bundle / "config.json").write_text(json.dumps(spec))
    said = run("runc", "--root", world.tmp / "runc", "run", "--bundle", bundle, "sidestep-test")
    check("user-pair" in said, f"sidestep reasons says {said[:300]!r}")
