"""Debian packages: control files, and dpkg-deb."""

import hashlib
import os
import shutil
import textwrap
from email.utils import formatdate

from . import notices
from .packages import DIST, PACKAGES, tree_of
from .programs import epoch, run

MAINTAINER = "The Sidestep developers <developers@sidestep.dev>"
ARCHITECTURE = "amd64"
# Of a description: what a terminal shows.
WIDTH = 76
# How the packages are compressed, and what takes a tenth of the time.
XZ, QUICKLY = ("-Zxz",), ("-Zgzip", "-z1")
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")


def build_all(programs, output, version, compression=XZ):
    """Returns the files of the packages."""
    output.mkdir(parents=True, exist_ok=True)
    return [build(package, programs, output, version, compression) for package in PACKAGES]


def build(package, programs, output, version, compression):
    tree = tree_of(package, programs)
    seconds = epoch()
    documents = f"usr/share/doc/{package.name}"
    tree.copy(f"{documents}/copyright", DIST / "deb" / "copyright")
    overrides = DIST / "deb" / f"{package.name}.lintian-overrides"
    if overrides.exists():
        tree.copy(f"usr/share/lintian/overrides/{package.name}", overrides)
    tree.zipped(f"{documents}/changelog", changelog(package.name, version, seconds))
    tree.zipped(f"{documents}/THIRD-PARTY", notices.notices(package.roots))
    root = programs.work / f"deb-{package.name}"
    shutil.rmtree(root, ignore_errors=True)
    (root / "DEBIAN").mkdir(parents=True)
    tree.write(root, seconds)
    depends = [*shared_libraries(package, programs), *(f"{name} (= {version})" for name in package.depends)]
    control = control_file(package, version, depends, tree.size())
    (root / "DEBIAN" / "control").write_text(control)
    (root / "DEBIAN" / "md5sums").write_text(md5sums(tree))
    conffiles = [f"/{path}\n" for path, (content, _) in tree.with_parents() if path.startswith("etc/") and content is not None]
    (root / "DEBIAN" / "conffiles").write_text("".join(conffiles))
    for script in SCRIPTS:
        source = DIST / "deb" / f"{package.name}.{script}"
        if source.exists():
            shutil.copy(source, root / "DEBIAN" / script)
            (root / "DEBIAN" / script).chmod(0o755)
    file = output / f"{package.name}_{version}_{ARCHITECTURE}.deb"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(seconds)}
    run("dpkg-deb", "--root-owner-group", *compression, "--build", root, file, env=environment)
    return file


def control_file(package, version, depends, size):
    about = "".join(f" {line}\n" for line in textwrap.wrap(package.about, WIDTH))
    lines = [
        f"Package: {package.name}", f"Version: {version}", f"Architecture: {ARCHITECTURE}", f"Maintainer: {MAINTAINER}",
        f"Installed-Size: {size}", f"Depends: {', '.join(depends)}" if depends else "",
        f"Suggests: {', '.join(package.suggests)}" if package.suggests else "",
        "Section: net", "Priority: optional", f"Description: {package.summary}",
    ]
    return "".join(f"{line}\n" for line in lines if line) + about


def shared_libraries(package, programs):
    """The packages of the libraries that the programs are linked with, as dpkg-shlibdeps finds them."""
    work = programs.work / "shlibdeps"
    (work / "debian").mkdir(parents=True, exist_ok=True)
    (work / "debian" / "control").write_text(f"Source: sidestep\n\nPackage: {package.name}\nArchitecture: any\n")
    words = [f"-e{programs.work / name}" for name in package.binaries if not name.endswith(".so")]
    said = run("dpkg-shlibdeps", "-O", *words, cwd=work).decode()
    found = [line.split("=", 1)[1] for line in said.splitlines() if line.startswith("shlibs:Depends=")]
    return [one.strip() for line in found for one in line.split(",")]


def md5sums(tree):
    def line(path, content):
        return f"{hashlib.md5(content, usedforsecurity=False).hexdigest()}  {path}\n"

    files = ((path, content) for path, (content, _) in tree.with_parents())
    return "".join(line(path, content) for path, content in files if content is not None and not path.startswith("etc/"))


def changelog(name, version, seconds):
    """In Debian's form."""
    where = "/usr/share/doc/sidestep/CHANGELOG.md.gz"
    return (f"{name} ({version}) unstable; urgency=medium\n\n  * What has changed is in {where}.\n\n"
            f" -- {MAINTAINER}  {formatdate(seconds)}\n").encode()
