"""A server that becomes a daemon, closes all descriptors but its output, and then serves one connection: prints
`listening on PORT`, answers what it reads, and ends with it."""

import os
import socket
import sys


def become_daemon():
    if os.fork():
        os._exit(0)
    os.setsid()
    for number in range(3, 2048):
        try:
            os.close(number)
        except OSError:
            pass  # not open, or not ours to close
    os.closerange(3, 65536)


def main():
    become_daemon()
    listener = socket.create_server(("127.0.0.1", 0))
    print("listening on", listener.getsockname()[1], flush=True)
    connection, _ = listener.accept()
    while data := connection.recv(65536):
        connection.sendall(data)


if __name__ == "__main__":
    sys.exit(main())
