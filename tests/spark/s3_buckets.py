"""Buckets of an S3 server on this machine."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@contextmanager
def bucket(*names: str) -> Iterator[dict[str, str]]:
    """PyIceberg's options for access to empty buckets, which exist during the `with` block."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {
            "s3.endpoint": f"http://{host}:{port}",
            "s3.access-key-id": "any",
            "s3.secret-access-key": "any",
            "s3.region": "us-east-1",
        }
        for name in names:
            put(options, f"s3://{name}", b"")
        yield options
    finally:
        server.stop()


def put(options: Mapping[str, str], location: str, content: bytes) -> None:
    """Write an object of exactly this name, or create a bucket if only that is named."""
    path = location.removeprefix("s3://")
    raw = {"Content-Type": "application/octet-stream"}  # Otherwise the server parses it as a form.
    request = Request(f"{options['s3.endpoint']}/{path}", content, raw, method="PUT")
    with urlopen(request) as response:
        assert response.status == 200
