"""Parses the address of a server."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from morag.errors import BadRequest

_PORTS: Final = {"http": 80, "https": 443}
_API: Final = "/api/v2"
_EXAMPLE: Final = "http://127.0.0.1:19120/api/v2"


class ServerUri(Struct, frozen=True):
    """The host and port of a server, and the base paths of the API and of Morag's additions."""

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
        """Host and port as in the Host header: without the port if it is the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"


def parse_server_uri(uri: str) -> ServerUri:
    """Read `http://127.0.0.1:19120/api/v2`, or the same without the path of the API."""
    split, port = _split(uri)
    if split.username is not None or split.password is not None:
        # Without the URI, because messages end up in logs.
        raise BadRequest("Server URI must not contain a user or a password: pass a token instead")
    if split.scheme not in _PORTS:
        raise BadRequest(
            f"Server URI '{uri}' must start with http:// or https://, as in {_EXAMPLE}"
        )
    if not split.hostname:
        raise BadRequest(f"Server URI '{uri}' has no host: write it as in {_EXAMPLE}")
    if split.query or split.fragment:
        raise BadRequest(f"Server URI '{uri}' must not have a query or a fragment")
    base = split.path.rstrip("/")
    if base.endswith("/api/v1"):
        raise BadRequest(f"Server URI '{uri}': this client uses API v2, so it must end in {_API}")
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
    except ValueError as error:
        if "@" in uri:
            # The text after the last colon may be part of a password, not a port.
            raise BadRequest("Server URI cannot be read: it has an invalid host or port") from None
        raise BadRequest(f"Server URI '{uri}' cannot be read: {error}") from None
    except (AttributeError, TypeError):
        raise BadRequest(f"Server URI {uri!r} must be a string") from None
