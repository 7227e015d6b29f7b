"""Compares conformance.md with Kubernetes' own cases for Services: each is in the table, and what is said to cover it exists. Its cases
for NetworkPolicy are looked for by their names in the tests of the model."""

import re

from kube import build
from testkit.paths import ROOT

TABLE = build.HERE / "conformance.md"
FILES = ("service.go", "conntrack.go", "kube_proxy.go")
# The one beside it only concerns the API server.
POLICY_FILES = ("netpol/network_policy.go",)
POLICIES = ROOT / "crates" / "mesh" / "tests" / "network_policy"
# A case begins with its name; nothing else in these files is called It.
CASE = re.compile(r'\b(?:Conformance)?It\("([^"]+)"')
ROW = re.compile(r"^\| (?P<case>[^|]+?) \| (?:`(?P<file>[^`]+)`: `(?P<word>[^`]+)`)? ?\| ?(?P<remark>[^|]*?) ?\|$")


def run(_testbed, _options, checks):
    rows = [row for row in map(ROW.match, TABLE.read_text().splitlines()) if row and row["case"] != "case"]
    named = [row["case"] for row in rows]
    wanted = cases(FILES)
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
    check_policies(checks)


def check_policies(checks):
    """A name is a text there, perhaps in two lines, or that of a function."""
    text = re.sub(r"\\\n\s+", "", "".join(file.read_text() for file in POLICIES.glob("*.rs")))
    wanted = cases(POLICY_FILES)
    checks.check(bool(wanted), "no cases for NetworkPolicy are found in the sources of Kubernetes")
    for name in sorted(wanted):
        function = f"fn {re.sub('[^a-z]+', '_', name.lower())}("
        checks.check(name in text or function in text, f"{POLICIES.relative_to(ROOT)} has no case {name!r}")


def cases(files):
    """The names in the sources of the version that is built."""
    folder = build.KUBERNETES.sources() / "test" / "e2e" / "network"
    return {name for file in files for name in CASE.findall((folder / file).read_text())}
