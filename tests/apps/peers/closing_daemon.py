"""A server that becomes a daemon, closes all descriptors but its output, and then serves one connection: prints
`listening on PORT`, answers what it reads, and ends with it."""

import os
import socket

from quiet_daemon import become_daemon, serve_one


def close_all():
    for number in range(3, 2048):
        try:
            os.close(number)
        except OSError:
            pass  # not open, or not ours to close
    os.closerange(3, 65536)


def main():
    become_daemon()
    close_all()
    serve_one(socket.create_server(("127.0.0.1", 0)))


if __name__ == "__main__":
    main()
