#!/usr/bin/env python3
"""A sidecar in forty lines: says what it is asked for, and passes it on.

It listens at 15001 for what its pod sends and at 15006 for what its pod receives, asks the kernel what each connection was
meant for (SO_ORIGINAL_DST), and dials that itself, from 127.0.0.6 if it is its own pod.
"""

import socket
import struct
import sys
import threading

SO_ORIGINAL_DST = 80
OUTBOUND, INBOUND = 15001, 15006


def original_destination(connection):
    _, port, address = struct.unpack("!HH4s8x", connection.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16))
    return socket.inet_ntoa(address), port


def pass_on(source, sink):
    while data := source.recv(65536):
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)


def serve(connection, peer, port):
    to = original_destination(connection)
    print(f"proxy of {sys.argv[1]}: {peer[0]} wants {to[0]}:{to[1]}", flush=True)
    own_pod = ("127.0.0.6", 0) if port == INBOUND else None
    with connection, socket.create_connection(to, source_address=own_pod) as onward:
        back = threading.Thread(target=pass_on, args=(onward, connection), daemon=True)
        back.start()
        pass_on(connection, onward)
        back.join()


def listen(port):
    with socket.create_server(("0.0.0.0", port)) as server:
        while True:
            connection, peer = server.accept()
            threading.Thread(target=serve, args=(connection, peer, port), daemon=True).start()


threading.Thread(target=listen, args=(INBOUND,), daemon=True).start()
listen(OUTBOUND)
