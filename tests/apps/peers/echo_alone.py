"""Both ends of the echo in one process: the server in a thread, the client beside it. Arguments as echo_client.py."""

import socket
import sys
import threading

import echo_client
import echo_server


def main():
    mode = sys.argv[sys.argv.index("--mode") + 1]
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    threading.Thread(target=echo_server.SERVERS[mode], args=(listener,), daemon=True).start()
    sys.argv += ["--port", str(listener.getsockname()[1])]
    return echo_client.main()


if __name__ == "__main__":
    sys.exit(main())
