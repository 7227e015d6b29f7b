"""What a device does in place of the kernel, by the ioctl of ethtool(8)."""

import ctypes
import fcntl
import socket
import struct

SIOCETHTOOL = 0x8946
# Of linux/ethtool.h.
SET_TRANSMIT_CHECKSUM, SET_SEGMENTATION, SET_JOINING_TO_SEND, SET_JOINING = 0x17, 0x1F, 0x24, 0x2C


def turn_off(namespace, device):
    """From now on the device sends and receives each packet by itself, with a complete checksum."""
    namespace.call(lambda: [_set(device, command, 0) for command in (
        SET_SEGMENTATION, SET_JOINING_TO_SEND, SET_JOINING, SET_TRANSMIT_CHECKSUM)])


def _set(device, command, value):
    words = ctypes.create_string_buffer(struct.pack("II", command, value), 8)
    request = struct.pack("16sP", device.encode(), ctypes.addressof(words))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, request.ljust(40, b"\0"))
