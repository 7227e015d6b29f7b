"""Manual pages: docs/man is written for pandoc."""

from .programs import ROOT, run


def page(name):
    """`name`: as `sidestep.1`. Returns troff."""
    source = ROOT / "docs" / "man" / f"{name}.md"
    return run("pandoc", "--standalone", "--from", "markdown", "--to", "man", source)


def add(tree, *names):
    for name in names:
        section = name.rsplit(".", 1)[1]
        tree.zipped(f"usr/share/man/man{section}/{name}", page(name))
