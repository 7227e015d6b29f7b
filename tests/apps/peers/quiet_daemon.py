"""A server that becomes a daemon and then says nothing until its first client comes: prints `listening on PORT`,
answers what it reads on one connection, and ends with it."""

import os
import socket


def become_daemon():
    if os.fork():
        os._exit(0)
    os.setsid()


def serve_one(listener):
    print("listening on", listener.getsockname()[1], flush=True)
    connection, _ = listener.accept()
    while data := connection.recv(65536):
        connection.sendall(data)


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    become_daemon()
    serve_one(listener)


if __name__ == "__main__":
    main()
