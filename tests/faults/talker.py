"""One process that answers on TCP, one that makes one connection after the other to it and checks the answers.

  talker.py serve PORT-FILE
  talker.py talk PORT
"""

import os
import socket
import sys
import threading

EXCHANGES = 50
MESSAGE_BYTES = 1000


def serve(port_file):
    listener = socket.create_server(("127.0.0.1", 0))
    with open(f"{port_file}.new", "w") as file:
        file.write(str(listener.getsockname()[1]))
    os.rename(f"{port_file}.new", port_file)
    while True:
        threading.Thread(target=answer, args=listener.accept()[:1], daemon=True).start()


def answer(connection):
    with connection:
        while data := connection.recv(MESSAGE_BYTES):
            connection.sendall(data)


def talk(port):
    while True:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            for _ in range(EXCHANGES):
                exchange(connection, os.urandom(MESSAGE_BYTES))


def exchange(connection, message):
    connection.sendall(message)
    back = b""
    while len(back) < MESSAGE_BYTES:
        part = connection.recv(MESSAGE_BYTES - len(back))
        if not part:
            sys.exit("the connection ended")
        back += part
    if back != message:
        sys.exit("the answer is another one")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        talk(int(sys.argv[2]))
