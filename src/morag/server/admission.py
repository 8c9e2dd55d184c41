"""Refuses requests because of their `Host`, or because of the web page that sent them.

Browsers let any page send requests to any server. A page of another origin cannot read the
response, but could write. A page whose name suddenly resolves to this server's address (DNS
rebinding) could do both. Other programs send no `Origin`, and the host of their configuration.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from morag.errors import BadRequest, Forbidden
from morag.server.cors import Cors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.api.http import Header
    from morag.config import ServerSettings

# Requests with these methods change nothing.
_SAFE_METHODS: Final = frozenset(("GET", "HEAD", "OPTIONS"))
_OWN_SITE: Final = frozenset((b"same-origin", b"none"))  # `none`: a typed URL or a bookmark.
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
_KNOWN_HOSTS: Final = 256

_AUTHORITY: Final = re.compile(r"(\[[0-9a-f:.]+\]|[^\s\[\]:/?#@\\]*)(?::([0-9]*))?")
_WHOLE_URL: Final = re.compile(rb"[^:/?#]+://([^/?#]*)")


class _Authority(NamedTuple):
    name: str
    port: str  # Empty for the default port.


class Admission:
    """Checks the host and the origin of requests; raises the error for one that is not admitted.

    A request whose `Host` is one of `known_hosts`, and that has neither `Origin` nor
    `Sec-Fetch-Site`, needs no check: like nearly all requests, it does not come from a browser.
    """

    def __init__(self, settings: ServerSettings, *, loopback_only: bool) -> None:
        self._loopback_only = loopback_only  # All addresses of the server are loopback ones.
        self._cors = Cors(settings.cors_origins)
        self._schemes = ("https",) if settings.tls_cert else ("https", "http")
        names = [name.lower().strip("[]").removesuffix(".") for name in settings.allowed_hosts]
        self._any_host = "*" in names or not (names or loopback_only)
        self._names = frozenset(name for name in names if not name.startswith("*"))
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))
        self.known_hosts: set[Header] = set()

    def check(self, method: str, url: bytes, headers: Sequence[Header]) -> None:
        """Check a request with at most one `Host`. HTTP/1.0 allows none, but no browser uses it."""
        host = _authority_in(url)
        if host is None:
            host = next((value for name, value in headers if name == b"host"), None)
        authority = None if host is None else self._admitted(host)
        if method not in _SAFE_METHODS:
            self._check_page(authority, headers)

    def _admitted(self, host: bytes) -> _Authority:
        text = host.decode("latin-1")
        authority = _parsed(text)
        if authority is None:
            raise BadRequest(f"Host must be a name or an address, not {_quoted(text)}")
        if self._any_host or self._is_accepted(authority.name):
            if len(self.known_hosts) < _KNOWN_HOSTS:
                self.known_hosts.add((b"host", host))
            return authority
        name = _quoted(authority.name)  # Without the port, because the setting has none.
        if self._loopback_only and not (self._names or self._suffixes):
            raise Forbidden(
                "This server listens on a loopback address, and accepts only hosts such as"
                f" localhost, not {name}; add it to the setting allowed_hosts"
            )
        raise Forbidden(
            f"This server does not accept the host {name}; add it to the setting allowed_hosts"
        )

    def _is_accepted(self, name: str) -> bool:
        """Whether the host is accepted. Loopback names always are: health checks in containers
        use them.

        DNS rebinding needs a name. So a server that other machines reach accepts any IP address,
        which Kubernetes uses in its probes.
        """
        name = name.strip("[]").removesuffix(".")
        if name == "localhost" or name.endswith(".localhost"):
            return True
        if name in self._names or name.endswith(self._suffixes):
            return True
        try:
            return ip_address(name).is_loopback or not self._loopback_only
        except ValueError:
            return False

    def _check_page(self, host: _Authority | None, headers: Sequence[Header]) -> None:
        origins = [value for name, value in headers if name == b"origin"]
        sites = [value for name, value in headers if name == b"sec-fetch-site"]
        if not origins and not sites:
            return
        if origins and all(map(self._cors.allows, origins)):
            return
        foreign = [origin for origin in origins if not self._is_at(origin, host)]
        if not foreign and _OWN_SITE.issuperset(sites):
            return
        page = (
            f"A page of {_quoted((foreign or origins)[0].decode('latin-1'))}"
            if origins
            else "A page of another origin"
        )
        raise Forbidden(
            f"{page} may not change this catalog; add the page's origin to the setting"
            " cors_origins. If this server's own page was refused, a proxy in front of it replaced"
            " the Host header: it must pass that on"
        )

    def _is_at(self, origin: bytes, host: _Authority | None) -> bool:
        """Whether the page came from the host of the request.

        The scheme of the request is not known if a proxy ends TLS. `null`, the origin of pages
        without one, never matches.
        """
        scheme, separator, rest = origin.decode("latin-1").partition("://")
        page = _parsed(rest) if separator and scheme in self._schemes else None
        if page is None or host is None:
            return False
        default = _DEFAULT_PORTS[scheme]
        return page.name == host.name and (page.port or default) == (host.port or default)


def _authority_in(url: bytes) -> bytes | None:
    """The authority of a target such as `http://host/path`, which overrides `Host`."""
    found = _WHOLE_URL.match(url)
    return found[1].rpartition(b"@")[2] if found else None


def _parsed(authority: str) -> _Authority | None:
    found = _AUTHORITY.fullmatch(authority.lower())
    return _Authority(found[1], found[2] or "") if found else None


def _quoted(sent: str) -> str:
    return f"'{sent[:200]}'"
