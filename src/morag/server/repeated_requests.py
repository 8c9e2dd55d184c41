"""Requests that clients repeat byte by byte, so that each is parsed and interpreted only once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.api.http import Header, Memo

if TYPE_CHECKING:
    from morag.api.http import Request

LONGEST_BYTES: Final = 1024
MOST_BYTES: Final = 4 * 1024 * 1024

# About the memory of an entry, which is mostly small objects.
_ENTRY_BYTES: Final = 1024
_HEADER_BYTES: Final = 160
_COPIES: Final = 4


class Parsed(Struct, frozen=True):
    """A GET request without a body. All requests with the same bytes share the memo."""

    path: str
    query: str
    headers: Sequence[Header]
    memo: Memo
    memory_bytes: int


class RepeatedRequests:
    """Remembers short requests that were accepted, within a limit of memory.

    What a request is, and whether it is admitted, depends on its bytes and on the settings alone,
    so it holds for all connections. Beyond the limit the oldest are forgotten: a request that
    clients do repeat is known again after the next time.
    """

    def __init__(self) -> None:
        self._parsed: OrderedDict[bytes, Parsed] = OrderedDict()
        self._bytes = 0

    def find(self, data: bytes) -> Parsed | None:
        """The request that consists of exactly these bytes, if it is known."""
        return self._parsed.get(data) if len(data) <= LONGEST_BYTES else None

    def remember(self, data: bytes, request: Request) -> None:
        if len(data) > LONGEST_BYTES or request.method != "GET" or request.body:
            return
        if data in self._parsed:
            return
        path, query, headers = request.path, request.query, request.headers
        memory_bytes = _ENTRY_BYTES + _HEADER_BYTES * len(headers) + _COPIES * len(data)
        self._parsed[data] = Parsed(path, query, headers, Memo(), memory_bytes)
        self._bytes += memory_bytes
        while self._bytes > MOST_BYTES:
            _, oldest = self._parsed.popitem(last=False)
            self._bytes -= oldest.memory_bytes
