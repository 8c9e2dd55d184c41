"""An S3 on this machine."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def bucket(name: str) -> Iterator[dict[str, str]]:
    """PyIceberg's options for reaching an empty bucket, which lives as long as the `with` block."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        with urlopen(Request(f"{endpoint}/{name}", method="PUT")) as answer:
            assert answer.status == 200
        yield {
            "s3.endpoint": endpoint,
            "s3.access-key-id": "any",
            "s3.secret-access-key": "any",
            "s3.region": "us-east-1",
        }
    finally:
        server.stop()
