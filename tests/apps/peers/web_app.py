"""One small web service for WSGI and ASGI servers: GET gives the file of that name, POST gives back what was posted."""

import os
from pathlib import Path

SITE = Path(os.environ["SITE"])


def body_of(method, path, posted):
    return posted if method == "POST" else (SITE / path.lstrip("/")).read_bytes()


def wsgi(environ, start_response):
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = body_of(environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["wsgi.input"].read(length))
    start_response("200 OK", [("Content-Type", "application/octet-stream"), ("Content-Length", str(len(body)))])
    return [body]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    posted, more = b"", True
    while more:
        message = await receive()
        posted, more = posted + message.get("body", b""), message.get("more_body", False)
    body = body_of(scope["method"], scope["path"], posted)
    await send({"type": "http.response.start", "status": 200, "headers": [
        (b"content-type", b"application/octet-stream"), (b"content-length", b"%d" % len(body))]})
    # In two parts, as services that stream do.
    await send({"type": "http.response.body", "body": body[:70_000], "more_body": True})
    await send({"type": "http.response.body", "body": body[70_000:]})
