"""Connections that end, or are handed to another program, while their offers are under way: soon after some quick operations. The client
is a forked child, or a program that ends by exit(3) (`exits HOST PORT TRIPS`). Prints one line of JSON: how many ends came `late`, of how
many that were `closed`, by a process with one thread and then with two; how many came late of those that `exited`, and how many of these
lacked what the last flush of stdio sends; and how many programs `lost` the connection that they were started with, of how many that were
`started`."""

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading

CLOSED, EXITED, STARTED = 100, 16, 10
TRIPS = range(6, 14)
FAREWELL = b"farewell"


def exchange(connection, trips, is_client):
    for _ in range(trips):
        if is_client:
            connection.sendall(b"x" * 10)
        if not connection.recv(100):
            raise EOFError("the peer has ended in the middle")
        if not is_client:
            connection.sendall(b"y" * 10)


def is_late(connection):
    """The other end has been closed by now."""
    connection.setblocking(False)
    try:
        return connection.recv(10) != b""
    except BlockingIOError:
        return True


def is_lost(connection):
    """A program echoes."""
    try:
        connection.sendall(b"hello")
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(100), b"")) != b"hello"
    except OSError:
        return True


def client(address, told, exited):
    result = {"closed": CLOSED, "started": STARTED, "late": 0, "lost": 0, **exited}
    for number in range(CLOSED + STARTED):
        with socket.create_connection(address, timeout=20) as connection:
            exchange(connection, TRIPS[number % len(TRIPS)], True)
            if number < CLOSED:
                os.read(told, 1)
                result["late"] += is_late(connection)
            else:
                result["lost"] += is_lost(connection)
    print(json.dumps(result), flush=True)


def serve(listener, tell):
    for number in range(CLOSED + STARTED):
        if number == CLOSED // 2:
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        connection = listener.accept()[0]
        exchange(connection, TRIPS[number % len(TRIPS)], False)
        if number >= CLOSED:
            program = subprocess.Popen(["cat"], stdin=connection, stdout=connection)
            threading.Thread(target=program.wait).start()
        connection.close()
        if number < CLOSED:
            os.write(tell, b".")


def ends_at_exit(listener):
    late = unflushed = 0
    for number in range(EXITED):
        trips = TRIPS[number % len(TRIPS)]
        program = subprocess.Popen([sys.executable, __file__, "exits", *map(str, (*listener.getsockname(), trips))])
        with listener.accept()[0] as connection:
            exchange(connection, trips, False)
            program.wait()
            connection.setblocking(False)
            unflushed += connection.recv(len(FAREWELL)) != FAREWELL
            late += is_late(connection)
    return {"late_at_exit": late, "unflushed": unflushed}


def exits(host, port, trips):
    """Without close(2) before. After all handlers of atexit(3), exit(3) flushes what stdio has, here through a function of our own."""
    connection = socket.create_connection((host, int(port)), timeout=20)
    exchange(connection, int(trips), True)
    libc = ctypes.CDLL(None)
    write = Cookie.WRITE(lambda _, at, size: connection.send(ctypes.string_at(at, size)))
    libc.fopencookie.restype = ctypes.c_void_p
    file = libc.fopencookie(None, b"w", Cookie(None, write, None, None))
    libc.fputs(FAREWELL, ctypes.c_void_p(file))
    libc.exit(0)


class Cookie(ctypes.Structure):
    """cookie_io_functions_t"""

    WRITE = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    _fields_ = [("read", ctypes.c_void_p), ("write", WRITE), ("seek", ctypes.c_void_p), ("close", ctypes.c_void_p)]


def main():
    told, tell = os.pipe()
    listener = socket.create_server(("127.0.0.1", 0))
    exited = {"exited": EXITED, **ends_at_exit(listener)}
    child = os.fork()
    if child == 0:
        client(listener.getsockname(), told, exited)
        os._exit(0)
    serve(listener, tell)
    _, status = os.waitpid(child, 0)
    raise SystemExit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    exits(*sys.argv[2:]) if sys.argv[1:] else main()
