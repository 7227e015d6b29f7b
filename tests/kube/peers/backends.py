#!/usr/bin/env python3
"""Backends that identify themselves: each answers with the address and port at which it was reached, and the client's
address.

  backends.py NAMESPACE=ADDRESS,ADDRESS@PORT,PORT...

Every address is served at every port, by TCP and UDP. Prints `ready` when all of them listen.
"""

import selectors
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kube.addresses import endpoint
from testkit.namespaces import enter


def listen(kind, address, port):
    server = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    if kind == socket.SOCK_STREAM:
        server.listen(1024)
    server.setblocking(False)
    return server


def greet(server, name):
    """Sends the name on each connection, and keeps the connection until the client ends it."""
    connection, client = server.accept()
    connection.setblocking(False)
    connection.sendall(told(name, client))
    return connection


def answer(server, name):
    question, client = server.recvfrom(2048)
    server.sendto(told(name, client) + b" " + question, client)


def told(name, client):
    return name + b" " + client[0].encode()


def swallow(selector, connection):
    """Sends everything back until the client has closed or reset the connection."""
    try:
        data = connection.recv(2048)
        if data:
            connection.sendall(data)
            return
    except BlockingIOError:
        return
    except OSError:
        pass
    selector.unregister(connection)
    connection.close()


def serve(selector):
    while True:
        for key, _ in selector.select():
            kind, name = key.data
            try:
                if kind == "connection":
                    swallow(selector, key.fileobj)
                elif kind == socket.SOCK_DGRAM:
                    answer(key.fileobj, name)
                else:
                    connection = greet(key.fileobj, name)
                    selector.register(connection, selectors.EVENT_READ, ("connection", name))
            except OSError:
                # The client has gone, or its socket has been closed.
                continue


def main():
    selector = selectors.DefaultSelector()
    for word in sys.argv[1:]:
        namespace, places = word.split("=")
        addresses, ports = places.rsplit("@", 1)
        enter(namespace)
        for address in addresses.split(","):
            for port in map(int, ports.split(",")):
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    name = endpoint(address, port).encode()
                    selector.register(listen(kind, address, port), selectors.EVENT_READ, (kind, name))
    print("ready", flush=True)
    serve(selector)


if __name__ == "__main__":
    main()
