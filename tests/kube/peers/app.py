#!/usr/bin/env python3
"""The server in the pods of the mesh: answers with its own name, the client's address, and what it received.

  app.py NAME http=8080,8125 tcp=9000 udp=5300 local=7070

HTTP with kept connections, lines of raw TCP (the last word is said after the other side has ended), UDP, and HTTP at
127.0.0.1 only. Prints `ready` when it listens. It needs no other file, since it runs as a user who can read little.
"""

import json
import socketserver
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

EVERYWHERE, LOCAL = "0.0.0.0", "127.0.0.1"
PIECE = 1 << 16


def answer(source, heard, identity=""):
    return json.dumps({"name": NAME, "source": source, "heard": heard, "identity": identity}).encode()


class Http(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        heard = self.rfile.read(int(self.headers["Content-Length"])).decode()
        said = answer(self.client_address[0], heard, self.headers.get("X-Forwarded-Client-Cert", ""))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_):
        """No log."""


class HttpServer(ThreadingHTTPServer):
    request_queue_size = 256


class Tcp(socketserver.StreamRequestHandler):
    """After a first line `echo` everything is sent back. Otherwise each line is answered, and the end as well."""

    def handle(self):
        heard = ""
        for line in self.rfile:
            if line == b"echo\n":
                return self.echo()
            heard = line.decode().rstrip("\n")
            self.wfile.write(answer(self.client_address[0], heard) + b"\n")
        self.wfile.write(answer(self.client_address[0], heard) + b"\n")

    def echo(self):
        while piece := self.rfile.read1(PIECE):
            self.wfile.write(piece)


class TcpServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256


class Udp(socketserver.BaseRequestHandler):
    def handle(self):
        question, replies = self.request
        replies.sendto(answer(self.client_address[0], question.decode()), self.client_address)


KINDS = {"http": (HttpServer, EVERYWHERE, Http), "tcp": (TcpServer, EVERYWHERE, Tcp),
         "udp": (socketserver.UDPServer, EVERYWHERE, Udp), "local": (HttpServer, LOCAL, Http)}


def main():
    threads = []
    for word in sys.argv[2:]:
        kind, ports = word.split("=")
        server, address, handler = KINDS[kind]
        for port in ports.split(","):
            made = server((address, int(port)), handler)
            threads.append(threading.Thread(target=made.serve_forever))
    for thread in threads:
        thread.start()
    print("ready", flush=True)


NAME = sys.argv[1]
if __name__ == "__main__":
    main()
