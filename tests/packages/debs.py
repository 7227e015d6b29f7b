"""Debian packages: built, installed, used, upgraded, purged."""

import os
import re
from pathlib import Path

from testkit import wait
from testkit.commands import run
from testkit.failure import check

NAMES = ("sidestep", "sidestep-agent", "sidestep-stack")
LIBRARY = "/usr/lib/sidestep/libsidestep.so"
UNITS = ("sidestepd.service", "sidestepd.socket", "sidestep-agent.service", "sidestep-stack.service")
PAGES = {"sidestep": 1, "sidestepd": 8, "sidestep-agent": 8, "sidestep-capture": 8, "sidestep-splice": 8, "sidestep-stack": 8}


def test_they_are_built_the_same_twice(world):
    again = world.package("deb", world.tmp / "again")
    files = sorted(world.debs.glob("*.deb"))
    check({file.name.split("_")[0] for file in files} == set(NAMES), f"other packages: {files}")
    for file in files:
        check(file.read_bytes() == (again / file.name).read_bytes(), f"{file.name} differs from one build to the next")


def test_lintian_finds_no_error(world):
    run("lintian", "--allow-root", "--fail-on", "error", *sorted(world.debs.glob("*.deb")), seconds=200)


def test_settings_are_conffiles(world):
    listed = "".join(run("dpkg-deb", "--info", file, "conffiles") for file in world.debs.glob("*.deb"))
    expected = {"/etc/sidestep/config.toml", "/etc/sidestep/agent.toml", "/etc/sidestep/stack.env"}
    check(set(listed.split()) == expected, f"conffiles are {listed.split()}")


def test_installed_they_work_and_purged_nothing_is_left(world):
    with world.installation() as there:
        there.install(world.debs)
        for name in ("sidestep", "sidestepd", "sidestep-agent", "sidestep-stack"):
            said = there.run(name, "--version")
            check(re.search(r"\d+\.\d+\.\d+", said), f"{name} --version says {said!r}")
        look_at_pages(there)
        look_at_completions(there)
        look_at_units(there)
        # The library is found, loaded, and carries a connection.
        doctor = ("sh", "-c", "sidestep doctor --json || true")
        check(LIBRARY in there.run(*doctor), f"the doctor does not find {LIBRARY}")
        # On a busy machine one end may have ended before the other one is served.
        wait.until(lambda: "bytes went by ring" in there.run(*doctor), "a ring by the installed library", 60)
        wait.until(lambda: not there.processes(), "the broker of the trial to end", 30)
        there.run("dpkg", "--purge", *reversed(NAMES))
        left = there.changed()
        check(not left, f"left after the purge: {left}")


def look_at_pages(there):
    for name, section in PAGES.items():
        page = there.run("man", "-P", "cat", str(section), name)
        check("SYNOPSIS" in page and name in page and "\\-\\-" not in page, f"the page {name}({section}) reads {page[:200]!r}")


def look_at_completions(there):
    script = ("source /usr/share/bash-completion/bash_completion && _completion_loader sidestep; complete -p sidestep && "
              "COMP_WORDS=(sidestep sta) COMP_CWORD=1 && _sidestep sidestep sta sidestep && echo ${COMPREPLY[@]}")
    said = there.run("bash", "-c", script)
    check(said.splitlines()[-1] == "status stack", f"bash completes to {said!r}")
    for file in ("zsh/vendor-completions/_sidestep", "fish/vendor_completions.d/sidestep.fish"):
        check("bugreport" in (there.root / "usr/share" / file).read_text(), f"{file} knows no bugreport")


def look_at_units(there):
    for name in UNITS:
        check((there.root / "lib/systemd/system" / name).is_file(), f"no unit {name}")
    wanted = there.root / "etc/systemd/system/sockets.target.wants/sidestepd.socket"
    check(wanted.is_symlink(), "the broker's socket is not enabled")
    check(f"LD_PRELOAD={LIBRARY}\n" in (there.root / "usr/lib/sidestep/rings.conf").read_text(), "the drop-in names another library")
    check(not list((there.root / "etc/systemd/system").glob("multi-user.target.wants/sidestep*")), "more is enabled than the socket")


def test_an_upgrade_keeps_settings_and_the_library_of_those_who_have_it(world):
    with world.installation() as there:
        there.install(world.debs)
        settings = there.root / "etc/sidestep/config.toml"
        settings.write_text(settings.read_text() + 'spin = "off"\n')
        before = (there.root / LIBRARY[1:]).stat().st_ino
        user = there.start("env", f"LD_PRELOAD={LIBRARY}", "sleep", "600")
        wait.until(lambda: LIBRARY in maps(user), "the process to have the library")
        there.install(world.next_debs, "--force-confold")
        check((there.root / LIBRARY[1:]).stat().st_ino != before, "the library was overwritten in place")
        check(f"{LIBRARY} (deleted)" in maps(user), f"the process has another library: {maps(user)}")
        check(user.poll() is None, "the process that had the library has ended")
        check('spin = "off"' in settings.read_text(), "the settings are not the user's any more")
        user.kill()
        user.wait()
        # And back.
        there.install(world.debs, "--force-confold", "--force-downgrade")
        check(there.run("dpkg-query", "-Wf", "${Status}", "sidestep") == "install ok installed", "the downgrade failed")


def test_what_the_agents_settings_name_is_detached_before_it_goes(world):
    """By a stand-in for the agent that writes down what it is asked."""
    with world.installation() as there:
        there.install(world.debs)
        agent, told = there.root / "usr/bin/sidestep-agent", there.root / "run/told"
        settings = there.root / "etc/sidestep/agent.toml"
        for expected in ("--detach --config /etc/sidestep/agent.toml", "--detach"):
            agent.unlink()
            agent.write_text('#!/bin/sh\necho "$@" >> /run/told\n')
            agent.chmod(0o755)
            there.run("dpkg", "--remove", "sidestep-agent")
            check(told.read_text().splitlines()[0] == expected, f"the agent is told {told.read_text()!r} instead of {expected}")
            told.unlink()
            # dpkg does not bring back what its owner has removed.
            settings.unlink(missing_ok=True)
            there.install(world.debs)


def maps(process):
    return Path(f"/proc/{process.pid}/maps").read_text()


def test_an_interrupted_upgrade_can_be_repeated(world):
    """A maintainer script that fails would leave the package half configured."""
    with world.installation() as there:
        there.install(world.debs)
        # No systemd, no helper, no BPF file system: nothing of it may matter.
        os.rename(there.root / "usr/bin/deb-systemd-helper", there.root / "usr/bin/away")
        there.install(world.next_debs)
        there.run("dpkg", "--configure", "--pending")
        for name in NAMES:
            check(there.run("dpkg-query", "-Wf", "${Version} ${Status}", name) == "99.0 install ok installed", name)
