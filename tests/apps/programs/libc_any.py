"""What every libc's programs may do to the library, here with this machine's glibc and with musl."""

import os
import shutil

from apps.support import echo, libc_echo, versions
from apps.support.libcs import HOST, MUSL
from testkit.failure import Failure, check


def version():
    return versions.of(r"(\d+\.\d+)", "ldd", "--version")


def test_clients_at_once(case):
    libc_echo.run_at_once(case, HOST)


def test_overrides(case):
    libc_echo.run_overrides(case, HOST)


def test_calls_before_the_constructor(case):
    """glibc runs constructors of preloaded libraries from the end of the list."""
    libc_echo.run_early(case, HOST, lambda ours, early: [ours, early])


def test_unknown(case):
    libc_echo.run_unknown(case, HOST, (), "fork")


def test_unknown_without_dlsym(case):
    libc_echo.run_unknown(case, HOST, ("-DALSO_DLSYM",), "exec")


def test_unknown_of_musl(case):
    libc_echo.run_unknown(case, MUSL, (), "epoll")


def test_unknown_of_musl_without_dlsym(case):
    libc_echo.run_unknown(case, MUSL, ("-DALSO_DLSYM",), "threads")


# /etc/ld.so.preload has the loader put the library into privileged programs too. It is there for one program only, in a
# mount namespace; env(1), which has the library in it as well, sets the variables for that program alone.
PRELOAD_EVERYWHERE = """
mount -t tmpfs none "$1" && mkdir "$1/upper" "$1/work" &&
mount -t overlay none -o "lowerdir=/etc,upperdir=$1/upper,workdir=$1/work" /etc && echo "$2" >/etc/ld.so.preload || exit 1
shift 2
exec setpriv --reuid 65534 --clear-groups env "$@"
"""


def test_privileged_program(case):
    """A set-user-ID program started by somebody else: the library obeys no variable of theirs, and writes nothing."""
    if os.geteuid() != 0:
        raise Failure("only root can make a set-user-ID program of root's")
    case.expect_kernel("server")
    case.expect_seen("ordinary")
    case.expect_untouched("privileged")
    case.tmp.chmod(0o777)
    port = echo.start_server(case, echo.python_server(case, "epoll"))
    for role, mode in (("ordinary", 0o755), ("privileged", 0o4755)):
        program = case.tmp / role
        shutil.copy(HOST.program("client.c"), program)
        program.chmod(mode)
        overlay = case.tmp / f"etc.{role}"
        overlay.mkdir()
        library = case.layer.bin_dir / "libsidestep.so" if case.layer else ""
        variables = [f"SIDESTEP_REPORT={case.report_path(role)}", "SIDESTEP_LOG=1", f"SIDESTEP_BROKER=@none-{case.tmp.name}"]
        case.run(role, ["unshare", "--mount", "sh", "-c", PRELOAD_EVERYWHERE, "sh", overlay, library, *variables,
                        program, "poll", "read", port, 1], preload=False)
    check("sidestep" not in case.processes[-1].output(), f"the library is not silent:\n{case.processes[-1].tail()}")
