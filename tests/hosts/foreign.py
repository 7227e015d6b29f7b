"""A device that has somebody else's XDP program. The stack leaves that alone."""

import ctypes
import json
import os
import socket
import struct
import subprocess

from hosts.cases import exchanged, must_have_counted, must_have_taken, second_cable, taken_by_now
from hosts.registry import SLOW, case
from testkit.failure import Failure

# Of asm/unistd_64.h and linux/bpf.h.
SYS_BPF = 321
PROG_LOAD, LINK_CREATE = 5, 28
PROG_TYPE_XDP, ATTACH_XDP, SKB_MODE = 6, 37, 2
# "return XDP_PASS".
PASS = struct.pack("<BBhi", 0xB7, 0, 0, 2) + struct.pack("<BBhi", 0x95, 0, 0, 0)
# A stack that cannot divert frames to a device of its own uses generic XDP.
WITHOUT_TUN = ("unshare", "--mount", "sh", "-c", 'mount --bind /dev/null /dev/net/tun && exec "$@"', "sh")


def bpf(command, attributes):
    """A descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)
    made = libc.syscall(SYS_BPF, command, ctypes.create_string_buffer(attributes, len(attributes)), len(attributes))
    if made < 0:
        raise Failure(f"bpf({command}): {os.strerror(ctypes.get_errno())}")
    return made


def attach(hosts, host):
    """A program that lets every frame pass, by generic XDP. It goes with the bed."""
    code, license = ctypes.create_string_buffer(PASS, len(PASS)), ctypes.create_string_buffer(b"GPL")
    program = bpf(PROG_LOAD, struct.pack("<IIQQ40x", PROG_TYPE_XDP, len(PASS) // 8, ctypes.addressof(code), ctypes.addressof(license)))
    hosts.stack.callback(os.close, program)

    def inside():
        return bpf(LINK_CREATE, struct.pack("<IIII", program, socket.if_nametoindex(host.device), ATTACH_XDP, SKB_MODE))
    hosts.stack.callback(os.close, host.namespace.call(inside))


def program_of(hosts, host):
    """The number of the device's XDP program, as `sidestep stack --check` tells it."""
    words = [hosts.stack_program, "--check", "--json", "--device", host.device]
    [report] = json.loads(subprocess.run(host.around(words), env=hosts.env, capture_output=True, text=True).stdout)
    return report["xdp_program"]


LOAD = ("--connections", "4", "--rounds", "1500")


@case
def a_foreign_xdp_program(hosts, seed):
    """Where the stack needs XDP itself, it says what is in its way, and does not start; the kernel carries everything."""
    host = hosts.server
    attach(hosts, host)
    number = program_of(hosts, host)
    try:
        host.start_stack(under=WITHOUT_TUN)
    except Failure as failure:
        said = str(failure)
    else:
        raise Failure("the stack has started")
    if "exit code 1" not in said or f"device {host.device} has an XDP program already, with id {number}:" not in said:
        raise Failure(f"the stack does not say what is in its way: {said}")
    exchanged(hosts, *LOAD, "--seed", seed)
    if program_of(hosts, host) != number:
        raise Failure("the other program is gone")


@case(part=SLOW)
def a_foreign_xdp_program_on_one_of_two_devices(hosts, seed):
    """The stack waits for a while, and goes on with the other device."""
    second_cable(hosts)
    attach(hosts, hosts.server)
    number = program_of(hosts, hosts.server)
    hosts.server.start_stack("--device", hosts.server.second, under=WITHOUT_TUN)
    left_out = f"goes on without a device: device {hosts.server.device} has an XDP program already, with id {number}:"
    if left_out not in hosts.server.stack.output():
        raise Failure(f"the stack does not say which device it leaves out:\n{hosts.server.stack.tail()}")
    exchanged(hosts, *LOAD, "--seed", seed)
    must_have_counted(hosts.server, "other-device")
    if taken := taken_by_now(hosts.server):
        raise Failure(f"the stack has taken {taken} connections of the device that it has left out")
    exchanged(hosts, *LOAD, "--seed", seed, dialled="10.9.9.2", bound="0.0.0.0")
    must_have_taken(hosts.server, 3)


@case
def a_foreign_xdp_program_before_tc_ingress(hosts, seed):
    """Both programs run, and the other one comes first."""
    attach(hosts, hosts.server)
    hosts.server.start_stack()
    exchanged(hosts, *LOAD, "--seed", seed)
    must_have_taken(hosts.server, 3)
