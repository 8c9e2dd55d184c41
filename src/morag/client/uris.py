"""The address of a server, taken apart once."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from morag.errors import BadRequest

_PORTS: Final = {"http": 80, "https": 443}
_API: Final = "/api/v2"


class ServerUri(Struct, frozen=True):
    """Where to connect, and below which paths the API and Morag's own extras are."""

    scheme: str
    host: str
    port: int
    api: str
    own: str

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Host and port as a request names them, without a port that goes without saying."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"


def parse_server_uri(uri: str) -> ServerUri:
    """Read `http://127.0.0.1:19120/api/v2`, or the same without the path of the API."""
    split, port = _split(uri)
    if split.username is not None or split.password is not None:
        # Not repeated here: messages end up in logs.
        raise BadRequest("Server URI must not hold a user or a password: pass a token instead")
    if split.scheme not in _PORTS or not split.hostname or split.query or split.fragment:
        raise BadRequest(
            f"Server URI '{uri}' must be like http://127.0.0.1:19120/api/v2, or with https"
        )
    base = split.path.rstrip("/")
    if base.endswith("/api/v1"):
        raise BadRequest(f"Server URI '{uri}': this client speaks API v2, write {_API} at its end")
    base = base.removesuffix(_API)
    if not base.isascii() or not base.isprintable() or " " in base:
        raise BadRequest(f"Server URI '{uri}' must have its path percent-encoded")
    try:
        host = split.hostname.encode("idna").decode()
    except UnicodeError:
        raise BadRequest(f"Server URI '{uri}' names no host") from None
    return ServerUri(
        split.scheme, host, port or _PORTS[split.scheme], base + _API, base + "/morag/v1"
    )


def _split(uri: str) -> tuple[SplitResult, int | None]:
    try:
        split = urlsplit(uri)
        return split, split.port
    except (ValueError, AttributeError, TypeError):
        raise BadRequest(f"Server URI {uri!r} cannot be read") from None
