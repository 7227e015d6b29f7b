"""Which BPF programs are attached to devices (tcx), and to network namespaces: the bpftool of Debian 12 knows neither."""

import ctypes
import errno
import os
import socket

# Of x86-64, and of linux/bpf.h.
BPF, PROG_QUERY = 321, 16
SK_LOOKUP, TCX_INGRESS, TCX_EGRESS = 36, 46, 47
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long


class Query(ctypes.Structure):
    """`query` of union bpf_attr."""

    _fields_ = [("target", ctypes.c_uint32), ("attach_type", ctypes.c_uint32), ("query_flags", ctypes.c_uint32),
                ("attach_flags", ctypes.c_uint32), ("prog_ids", ctypes.c_uint64), ("count", ctypes.c_uint32),
                ("padding", ctypes.c_uint32), ("prog_attach_flags", ctypes.c_uint64), ("link_ids", ctypes.c_uint64),
                ("link_attach_flags", ctypes.c_uint64), ("revision", ctypes.c_uint64)]


def count(target, attach_type):
    """`target`: the index of a device of the calling thread's network namespace, or a descriptor of a namespace."""
    query = Query(target=target, attach_type=attach_type)
    if LIBC.syscall(BPF, PROG_QUERY, ctypes.byref(query), ctypes.sizeof(query)) == 0:
        return query.count
    number = ctypes.get_errno()
    # A device that has gone meanwhile, or has never had a program.
    if number in (errno.ENODEV, errno.ENOENT):
        return 0
    raise OSError(number, os.strerror(number))


def to_devices(namespace):
    """Names of the namespace's devices that have programs."""
    return namespace.call(lambda: [name for index, name in socket.if_nameindex()
                                   if count(index, TCX_INGRESS) + count(index, TCX_EGRESS)])


def to_namespace(path):
    """How many programs look up sockets there."""
    file = os.open(path, os.O_RDONLY)
    try:
        return count(file, SK_LOOKUP)
    finally:
        os.close(file)
