"""Compares conformance.md with Kubernetes' own cases for Services: each is in the table, and what is said to cover it exists."""

import re

from kube import build
from testkit.paths import ROOT

TABLE = build.HERE / "conformance.md"
FILES = ("service.go", "conntrack.go", "kube_proxy.go")
# A case begins with its name; nothing else in these files is called It.
CASE = re.compile(r'\b(?:Conformance)?It\("([^"]+)"')
ROW = re.compile(r"^\| (?P<case>[^|]+?) \| (?:`(?P<file>[^`]+)`: `(?P<word>[^`]+)`)? ?\| ?(?P<remark>[^|]*?) ?\|$")


def run(_testbed, _options, checks):
    rows = [row for row in map(ROW.match, TABLE.read_text().splitlines()) if row and row["case"] != "case"]
    named = [row["case"] for row in rows]
    wanted = cases()
    checks.check(bool(wanted), "no cases are found in the sources of Kubernetes")
    for name in sorted(wanted | set(named)):
        checks.check(named.count(name) == 1 and name in wanted,
                     f"{TABLE.name}: {named.count(name)} rows for {name!r}, a case of Kubernetes: {name in wanted}")
    for row in rows:
        if not row["file"]:
            checks.check(bool(row["remark"]), f"{TABLE.name}: {row['case']!r} is not covered, and the row does not say why")
            continue
        path = ROOT / row["file"]
        checks.check(path.exists() and row["word"] in path.read_text(),
                     f"{TABLE.name}: {row['file']} has no {row['word']!r}, which is to cover {row['case']!r}")


def cases():
    """The names in the sources of the version that is built."""
    folder = build.KUBERNETES.sources() / "test" / "e2e" / "network"
    return {name for file in FILES for name in CASE.findall((folder / file).read_text())}
