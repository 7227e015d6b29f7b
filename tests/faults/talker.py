"""One process that answers on TCP, one that makes one connection after the other to it and checks the answers.

  talker.py serve PORT-FILE
  talker.py talk PORT

Or one connection that lasts, of which the file says how many bytes it has carried, and how many of them by kernel:

  talker.py talk-on PORT COUNTS-FILE

Or one connection, on which the other end says nothing until a file is there:

  talker.py serve-late PORT-FILE GO-FILE
  talker.py talk-early PORT GO-FILE SENT-FILE
"""

import os
import socket
import struct
import sys
import threading
import time

EXCHANGES = 50
MESSAGE_BYTES = 1000
# A broker that is gone is looked for once a second.
SECONDS = 4
# tcpi_bytes_acked and tcpi_bytes_received of struct tcp_info (linux/tcp.h).
KERNEL_BYTES = struct.Struct("120x2Q")


def listen(port_file):
    listener = socket.create_server(("127.0.0.1", 0))
    replace(port_file, str(listener.getsockname()[1]))
    return listener


def replace(path, text):
    with open(f"{path}.new", "w") as file:
        file.write(text)
    os.rename(f"{path}.new", path)


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


def talk_on(port, counts_file):
    carried = 0
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        while True:
            for _ in range(EXCHANGES):
                exchange(connection, os.urandom(MESSAGE_BYTES))
            carried += 2 * EXCHANGES * MESSAGE_BYTES
            told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, KERNEL_BYTES.size)
            replace(counts_file, f"{carried} {sum(KERNEL_BYTES.unpack(told))}")


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
    {"serve": serve, "talk": talk, "talk-on": talk_on, "serve-late": serve_late,
     "talk-early": talk_early}[sys.argv[1]](*sys.argv[2:])
