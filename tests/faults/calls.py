"""The system calls that are made to fail, their names, and the errors that their man pages allow beside the two that
everything must bear."""

import re
import subprocess

# Whatever the call: no memory, no descriptor.
ALWAYS = ("ENOMEM", "EMFILE")

INTERRUPTED = ("EINTR",)
NOT_NOW = ("EAGAIN",)
BOTH = ("EINTR", "EAGAIN")

# signal(7), socket(7) and the page of each call; what is not here knows neither.
ALSO = {
    "accept4": BOTH, "close": INTERRUPTED, "connect": BOTH, "epoll_pwait2": INTERRUPTED, "epoll_wait": INTERRUPTED,
    "epoll_pwait": INTERRUPTED, "fcntl": NOT_NOW, "futex": BOTH, "mmap": NOT_NOW, "mremap": NOT_NOW,
    "nanosleep": INTERRUPTED, "openat": INTERRUPTED, "poll": INTERRUPTED, "ppoll": INTERRUPTED, "read": BOTH,
    "recvmsg": BOTH, "sendmsg": BOTH, "write": BOTH, "clone3": NOT_NOW,
}

# The two calls that the library sleeps in, through libc. They return what the program's own wait would return, so they
# fail only as that one may.
SLEEPS = {"ppoll": ("ENOMEM", "EINTR"), "epoll_pwait2": ("EINTR",)}


# "This call is always successful": no error of theirs exists, so none is tried.
NEVER_FAIL = {"getpid", "gettid", "geteuid", "sched_yield"}


# Calls that carry the program's own bytes as well as records for the broker. Where they carry bytes, the kernel could
# say ENOMEM of a socket, and the program hears it and tries again; but no error of descriptors, and no EAGAIN of a
# socket that is ready. All of them failing would be a connection on which nothing moves.
CARRY = {"sendmsg", "recvmsg"}
CARRYING = ("ENOMEM", "EINTR")

# Made also on the program's behalf, at its epoll_ctl(2), which knows no error of descriptors.
ONLY = {"epoll_ctl": ("ENOMEM",)}

# A program whose every wait is interrupted hears nothing on the kernel either.
NOT_ALL = {"epoll_pwait2"}

# EAGAIN of an eventfd says that it is full: a write that is told so has rung, and a lie about it is no failure.
TRUTHS = {("write", "EAGAIN")}

# Made only when threads get into each other's way, which a slow call inside a lock (SLOW) makes sure of.
COLLISIONS = {"futex", "sched_getscheduler"}

# Made only while bytes are on their way back at the very moment they are wanted: no load makes it twice for sure.
NOT_LATER = {"nanosleep"}
SLOW = "fcntl"


WHEN = ("first", "later", "all")


def rounds_of(name):
    """(descriptors, error, when) of a call's rounds."""
    if name not in CARRY:
        return [("any", error, when) for error in errors(name) for when in WHEN[:2 if name in NOT_ALL else 3]]
    return ([("own", error, when) for error in errors(name) for when in WHEN]
            + [("program", error, when) for error in CARRYING for when in WHEN[:2]])


def errors(name):
    if name in NEVER_FAIL:
        return ()
    found = SLEEPS.get(name) or ONLY.get(name) or ALWAYS + ALSO.get(name, ())
    return tuple(error for error in found if (name, error) not in TRUTHS)


# --- the broker: all calls are its own, whoever makes them in its name ----------------------------------------------

# No call that could fail, or not one of the broker's: the kernel's return from a signal, its own end and beginning; and
# a close that fails has closed all the same. brk(2) says what the break is, never an error. rseq(2) and rt_sigprocmask(2)
# fail only for wrong arguments, and libc makes them with its own.
NO_CALLS = NEVER_FAIL | {"close", "exit", "exit_group", "execve", "rt_sigreturn", "restart_syscall", "brk", "rseq",
                         "rt_sigprocmask"}

# What it does itself before it serves; the rest of its start is the loader's and the language's.
START = {"bind", "epoll_create1", "epoll_ctl", "epoll_pwait", "fcntl", "listen", "prlimit64", "setsockopt", "socket",
         "socketpair", "umask"}

# A broker whose every wait fails is none at all, what can never be unmapped stays, and the heap of a thread that dies of
# memory that cannot be had is tried again by each allocation of its last words.
NEVER_ALL = {"epoll_wait", "epoll_pwait", "epoll_pwait2", "mprotect", "munmap", "poll", "ppoll"}


# Each time that the broker makes it in a load, it fails once: its threads hear by what it adds, one after the other; and
# whom it cannot send to or receive from goes on without it, at any moment of a connection's life.
EVERY_ONE = {"epoll_ctl", "sendmsg", "recvmsg"}


# What is said for a moment. A socket that is called ready and always says otherwise is a lie.
FOR_A_MOMENT = {"EINTR", "EAGAIN"}


def broker_whens(name, error):
    return WHEN[:2] if name in NEVER_ALL or error in FOR_A_MOMENT else WHEN


def broker_errors(name):
    if name in NO_CALLS:
        return ()
    return tuple(error for error in ALWAYS + ALSO.get(name, ()) if (name, error) not in TRUTHS)


def names():
    """Names of all system calls, by number, as the C compiler's headers have them."""
    done = subprocess.run(["cc", "-E", "-dM", "-include", "asm/unistd_64.h", "-x", "c", "/dev/null"],
                          capture_output=True, text=True, check=True)
    found = re.findall(r"^#define __NR_(\w+) (\d+)$", done.stdout, re.MULTILINE)
    return {int(number): name for name, number in found}
