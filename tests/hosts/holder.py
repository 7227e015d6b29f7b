#!/usr/bin/env python3
"""The server of peer.py, which holds its sockets' locks while a file is there.

  holder.py ADDRESS PORT FILE            prints "holds" once it does, and "holds no more"

setsockopt(2) of IP_OPTIONS sleeps with the socket's lock while it copies from memory that is not there yet (userfaultfd). The call is
made past the library, which would first bring the connection back to the kernel.
"""

import ctypes
import mmap
import os
import select
import socket
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hosts import peer

PAGE = 4096
# Of x86-64, linux/userfaultfd.h and linux/in.h.
SETSOCKOPT, USERFAULTFD = 54, 323
UFFD_API, UFFDIO_API, UFFDIO_REGISTER, UFFDIO_COPY, MODE_MISSING = 0xAA, 0xC018AA3F, 0xC020AA00, 0xC028AA03, 1
IP_OPTIONS = 4
# mov rax, rdi; mov rdi, rsi; mov rsi, rdx; mov rdx, rcx; mov r10, r8; mov r8, r9; syscall; ret
SYSTEM_CALL = bytes.fromhex("4889f8 4889f7 4889d6 4889ca 4d89c2 4d89c8 0f05 c3")

libc = ctypes.CDLL(None, use_errno=True)


def system_call():
    """The instruction, as a function."""
    code = mmap.mmap(-1, PAGE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(SYSTEM_CALL)
    function = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 6)
    return function(address_of(code)), code


def address_of(memory):
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def control(faults, request, *words):
    text = ctypes.create_string_buffer(struct.pack(f"{len(words)}Q", *words))
    if libc.ioctl(faults, ctypes.c_ulong(request), text):
        raise OSError(ctypes.get_errno(), "userfaultfd")


class Held:
    """The lock of one socket. What is copied in the end is no IP option: the call fails, and has done nothing."""

    def __init__(self, call, connection):
        self.memory = mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.page = address_of(self.memory)
        self.faults = libc.syscall(USERFAULTFD, os.O_CLOEXEC | os.O_NONBLOCK)
        control(self.faults, UFFDIO_API, UFFD_API, 0, 0)
        control(self.faults, UFFDIO_REGISTER, self.page, PAGE, MODE_MISSING, 0)
        words = (SETSOCKOPT, connection.fileno(), socket.IPPROTO_IP, IP_OPTIONS, self.page, 4)
        self.thread = threading.Thread(target=call, args=words)
        self.thread.start()
        if not select.select([self.faults], [], [], 10)[0]:
            sys.exit("the kernel asks for no page")

    def release(self):
        wrong = ctypes.create_string_buffer(b"\xff" * PAGE, PAGE)
        control(self.faults, UFFDIO_COPY, self.page, ctypes.addressof(wrong), PAGE, 0, 0)
        self.thread.join()
        os.close(self.faults)


def watch(file, connections):
    call, _code = system_call()
    while True:
        wait_until(file.exists)
        held = [Held(call, connection) for connection in connections if connection.fileno() >= 0]
        print("holds", flush=True)
        wait_until(lambda: not file.exists())
        for one in held:
            one.release()
        print("holds no more", flush=True)


def wait_until(condition):
    while not condition():
        time.sleep(0.01)


def main():
    address, port, file = sys.argv[1:]
    connections, accept = [], peer.accept

    def accept_and_note(listener, selector, unsent, option):
        before = set(unsent)
        accept(listener, selector, unsent, option)
        connections.extend(connection for connection in unsent if connection not in before)

    peer.accept = accept_and_note
    threading.Thread(target=watch, args=(Path(file), connections), daemon=True).start()
    peer.serve(address, int(port), None, 1)


if __name__ == "__main__":
    main()
