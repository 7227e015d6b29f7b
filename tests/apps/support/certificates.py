"""A certificate of its own for one test."""

from testkit import paths


def make(case):
    """Makes a self-signed certificate for localhost and 127.0.0.1 (cert.pem, key.pem) and returns its directory."""
    directory = case.tmp / "certificates"
    directory.mkdir()
    case.run("openssl", [
        paths.program("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
        "-nodes", "-days", "30", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout", directory / "key.pem", "-out", directory / "cert.pem"], preload=False)
    return directory
