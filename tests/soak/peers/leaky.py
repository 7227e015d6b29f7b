"""A server that leaks on purpose: one descriptor, page or mapping for every 1000 connections, or nothing."""

import mmap
import os
import socket
import sys

EVERY = 1000
ROOM = 256 * 1024 * 1024
PAGE = mmap.PAGESIZE


def main():
    kind = sys.argv[1]
    room, kept = mmap.mmap(-1, ROOM, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), []
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        print(f"listening on {listener.getsockname()[1]}", flush=True)
        served = 0
        while True:
            connection, _ = listener.accept()
            connection.close()
            served += 1
            if served % EVERY:
                continue
            if kind == "fds":
                kept.append(os.dup(0))
            elif kind == "rss":
                room[served // EVERY * PAGE] = 1
            elif kind == "mappings":
                # Shared: two private ones side by side would become one.
                kept.append(mmap.mmap(-1, PAGE))


if __name__ == "__main__":
    main()
