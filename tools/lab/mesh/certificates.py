"""Who the two pods are: certificates of an authority of this measurement's own, with the names that Istio gives."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from ..netns import must
from .settings import CAPTURE, identity

KEY = "rsa:2048"
DAYS = "2"


@dataclass(frozen=True)
class Papers:
    """Files that the sidecar reads."""

    authority: Path
    certificate: Path
    key: Path


def make(folder, roles):
    """role -> Papers"""
    folder.mkdir()
    authority = _request(folder, "authority", "/O=sidestep bench", ["-x509", "-days", DAYS])
    return {role: _papers(folder, role, authority) for role in roles}


def _papers(folder, role, authority):
    names = folder / f"{role}.names"
    names.write_text(f"subjectAltName=critical,URI:{identity(role)}\n", encoding="ascii")
    request = _request(folder, role, f"/O={role}", [])
    certificate = folder / f"{role}.pem"
    signer = ["-CA", authority, "-CAkey", folder / "authority.key", "-CAcreateserial"]
    files = ["-in", request, "-extfile", names, "-out", certificate]
    _openssl(["x509", "-req", "-days", DAYS, *signer, *files])
    key = folder / f"{role}.key"
    shutil.chown(key, CAPTURE.user, CAPTURE.group)
    return Papers(authority, certificate, key)


def _request(folder, name, subject, options):
    """A new key, and a request for a certificate or one that signs itself."""
    out = folder / f"{name}.req"
    files = ["-keyout", folder / f"{name}.key", "-out", out]
    _openssl(["req", "-newkey", KEY, "-nodes", "-subj", subject, *options, *files])
    return out


def _openssl(words):
    must(["openssl", *map(str, words)], install="bench-mesh")
