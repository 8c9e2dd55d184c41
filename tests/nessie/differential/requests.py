"""Requests with symbols for generated values, and connections that send them."""

from __future__ import annotations

import gzip
import http.client
import json
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from tests.nessie.differential.comparison import Answer

if TYPE_CHECKING:
    from tests.nessie.differential.symbols import Json, Symbols

_TIMEOUT_SECONDS: Final = 60


class Request(Struct, frozen=True):
    """`path` is quoted, `query` is not. `$` begins a symbol in both, and in `text`."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    text: str | None = None
    zipped: bool = False

    @property
    def writes(self) -> bool:
        return self.method not in ("GET", "HEAD", "OPTIONS")

    @property
    def json(self) -> Json:
        return None if self.text is None else json.loads(self.text)

    def with_json(self, body: Json) -> Request:
        return replace(self, text=json.dumps(body))

    def with_query(self, **more: str) -> Request:
        return replace(self, query=(*self.query, *more.items()))

    def url(self, symbols: Symbols, side: int) -> str:
        query = urlencode(self.query, safe="$", quote_via=quote)
        return symbols.real(self.path + (f"?{query}" if query else ""), side, quoted=True)

    def __str__(self) -> str:
        query = urlencode(self.query, safe="$/:'\"()[]=&|<>!,. ", quote_via=quote)
        parts = [self.method, self.path + (f"?{query}" if query else "")]
        parts += [f"{name}: {value}" for name, value in self.headers]
        parts += ["zipped"] if self.zipped else []
        parts += [self.text] if self.text is not None else []
        return " ".join(parts)


def path(*parts: str, api: str = "v2") -> str:
    """A path whose parts are quoted as little as a URL allows."""
    return "/".join([f"/api/{api}", *(quote(part, safe="$@~*:!',()") for part in parts)])


class Connection:
    """A kept-alive connection, which is opened anew after a server closed it."""

    def __init__(self, address: str, side: int) -> None:
        self._netloc = urlsplit(address).netloc
        self._side = side
        self._http = http.client.HTTPConnection(self._netloc, timeout=_TIMEOUT_SECONDS)

    def send(self, request: Request, symbols: Symbols) -> Answer:
        data = None
        if request.text is not None:
            data = symbols.real(request.text, self._side).encode(errors="surrogatepass")
            data = gzip.compress(data) if request.zipped else data
        self._http.putrequest(
            request.method, request.url(symbols, self._side), skip_accept_encoding=True
        )
        for name, value in request.headers:
            self._http.putheader(name, value)
        if request.zipped:
            self._http.putheader("Content-Encoding", "gzip")
        if data is not None or request.writes:
            self._http.putheader("Content-Length", str(len(data or b"")))
        self._http.endheaders(data)
        answer = self._http.getresponse()
        body = answer.read()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        if answer.will_close:
            self._http.close()
        return Answer(answer.status, headers, body)

    def close(self) -> None:
        self._http.close()
