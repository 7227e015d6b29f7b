#!/usr/bin/env python3
"""One end of a tunnel: carries the packets of a TUN device in datagrams between two hosts.

  forwarder.py DEVICE LOCAL REMOTE
"""

import fcntl
import os
import selectors
import socket
import struct
import sys

PORT = 51820
# Of linux/if_tun.h.
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


def main():
    device, local, remote = sys.argv[1:]
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TUN | IFF_NO_PI))
    outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    outside.bind((local, PORT))
    outside.connect((remote, PORT))
    outside.setblocking(False)
    selector = selectors.DefaultSelector()
    selector.register(tun, selectors.EVENT_READ, lambda: outside.send(os.read(tun, 65536)))
    selector.register(outside, selectors.EVENT_READ, lambda: os.write(tun, outside.recv(65536)))
    while True:
        for key, _ in selector.select():
            try:
                key.data()
            except OSError:
                pass  # an end is not up yet, or its queue is full: what is lost is sent again


if __name__ == "__main__":
    main()
