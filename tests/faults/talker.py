"""One process that answers on TCP, one that makes one connection after the other to it and checks the answers.

  talker.py serve PORT-FILE
  talker.py talk PORT

Or one connection, on which the other end says nothing until a file is there:

  talker.py serve-late PORT-FILE GO-FILE
  talker.py talk-early PORT GO-FILE SENT-FILE
"""

import os
import socket
import sys
import threading
import time

EXCHANGES = 50
MESSAGE_BYTES = 1000
# A broker that is gone is looked for once a second.
SECONDS = 4


def listen(port_file):
    listener = socket.create_server(("127.0.0.1", 0))
    with open(f"{port_file}.new", "w") as file:
        file.write(str(listener.getsockname()[1]))
    os.rename(f"{port_file}.new", port_file)
    return listener


def serve(port_file):
    listener = listen(port_file)
    while True:
        threading.Thread(target=answer, args=listener.accept()[:1], daemon=True).start()


def answer(connection):
    with connection:
        while data := connection.recv(MESSAGE_BYTES):
            connection.sendall(data)


def talk(port):
    while True:
        with socket.create_connection(("127.0.0.1", int(port))) as connection:
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


def serve_late(port_file, go_file):
    with listen(port_file) as listener:
        connection, _ = listener.accept()
    wait_for(go_file)
    answer(connection)


def talk_early(port, go_file, sent_file):
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        message = os.urandom(MESSAGE_BYTES)
        connection.sendall(message)
        open(sent_file, "w").close()
        wait_for(go_file)
        if connection.recv(MESSAGE_BYTES, socket.MSG_WAITALL) != message:
            sys.exit("the first answer is another one")
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            exchange(connection, os.urandom(MESSAGE_BYTES))


def wait_for(file):
    while not os.path.exists(file):
        time.sleep(0.01)


if __name__ == "__main__":
    {"serve": serve, "talk": talk, "serve-late": serve_late, "talk-early": talk_early}[sys.argv[1]](*sys.argv[2:])
