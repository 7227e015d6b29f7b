"""The names that kube-proxy gives to chains."""

import base64
import hashlib

PROTOCOL = "tcp"


def digest(*words, length):
    """The beginning of a SHA-256 in base 32, by which kube-proxy keeps names short."""
    return base64.b32encode(hashlib.sha256("".join(words).encode()).digest()).decode()[:length]
