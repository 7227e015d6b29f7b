"""The licences of the crates that are linked into the programs, with their texts."""

import json
from pathlib import Path

from .programs import ROOT, run

# Files of a crate whose names begin so are its licence.
NAMES = ("license", "licence", "copying", "copyright", "unlicense", "notice")
TARGET = "x86_64-unknown-linux-gnu"


def linked(metadata, roots):
    """The packages that programs of these crates are linked with: no tests, nothing that only a build runs."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    packages = {package["id"]: package for package in metadata["packages"]}
    open_ids = [one["id"] for one in metadata["packages"] if one["name"] in roots and one["source"] is None]
    found = set()
    while open_ids:
        one = open_ids.pop()
        if one in found:
            continue
        found.add(one)
        for need in nodes[one]["deps"]:
            if any(kind["kind"] is None for kind in need["dep_kinds"]):
                open_ids.append(need["pkg"])
    return sorted((packages[one] for one in found if packages[one]["source"]), key=lambda p: (p["name"], p["version"]))


def texts(package):
    folder = Path(package["manifest_path"]).parent
    found = sorted(path for path in folder.iterdir() if path.is_file() and path.name.lower().startswith(NAMES))
    return [path.read_text(errors="replace").strip() for path in found]


def notices(roots):
    """One text; each licence once, with all crates that have it word for word."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET]
    metadata = json.loads(run(*command, cwd=ROOT))
    packages = linked(metadata, roots)
    lines = ["Rust crates that are part of the programs, and their licences:", ""]
    lines += [f"{p['name']} {p['version']}: {p['license'] or 'see below'}" for p in packages]
    by_text = {}
    for package in packages:
        for text in texts(package):
            by_text.setdefault(text, []).append(package["name"])
    for text, names in by_text.items():
        lines += ["", "-" * 80, ", ".join(sorted(set(names))), "", text]
    return ("\n".join(lines) + "\n").encode()
