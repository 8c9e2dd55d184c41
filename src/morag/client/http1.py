"""HTTP/1.1 on one connection: send a request, read the answer.

Written out because it is small and a client's speed hangs on it: reading an answer with the
standard library takes longer than the server needs to give it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    import socket

_AT_ONCE: Final = 1 << 16
_LONGEST_HEAD: Final = 1 << 18
_LONGEST_LINE: Final = 1 << 13
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: .*)?")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_CHUNK_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;.*)?")
_NO_BODY: Final = frozenset({204, 304})


class HungUp(ConnectionError):
    """The connection ended before the answer did."""


class NotHttp(Exception):
    """What came back is no answer in HTTP."""


class Reply(Struct, frozen=True):
    """Header names are in lower case; of several headers of one name the values are joined."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class Connection:
    """One socket. After any exception it is good for nothing but to be closed."""

    def __init__(
        self,
        sock: socket.socket,
        timeout_seconds: float,
        nothing_there: tuple[type[OSError], ...] = (BlockingIOError,),
    ) -> None:
        """`nothing_there` is what the socket raises when it is read without waiting, in vain."""
        sock.settimeout(timeout_seconds)
        self._sock = sock
        self._timeout_seconds = timeout_seconds
        self._nothing_there = nothing_there
        self._unread = b""
        self.reusable = True

    def is_idle(self) -> bool:
        """Whether the other side keeps quiet, as it should. It may have hung up meanwhile.

        A read that does not wait tells more than a poll: TLS sends messages of its own at times.
        """
        if self._unread:
            return False
        self._sock.setblocking(False)
        try:
            self._sock.recv(1)
        except self._nothing_there:
            return True
        except OSError:
            return False
        finally:
            self._sock.settimeout(self._timeout_seconds)
        return False

    def ask(self, request: bytes) -> Reply:
        # A server may refuse a long request, and hang up, before it has read all of it.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._sock.sendall(request)
        version, status, headers = self._head()
        while status < 200:
            version, status, headers = self._head()
        body = b"" if status in _NO_BODY else self._body(headers)
        if version == 0 or b"close" in headers.get(b"connection", b"").lower():
            self.reusable = False
        return Reply(status, headers, body)

    def close(self) -> None:
        self._sock.close()

    def _head(self) -> tuple[int, int, dict[bytes, bytes]]:
        while (end := self._unread.find(b"\r\n\r\n")) < 0:
            if not b"HTTP/1.".startswith(self._unread[:7]):
                raise NotHttp(f"the answer starts with {self._unread[:20]!r}")
            if len(self._unread) > _LONGEST_HEAD:
                raise NotHttp("the answer has too many headers")
            self._unread += self._more()
        status_line, *lines = self._unread[:end].split(b"\r\n")
        self._unread = self._unread[end + 4 :]
        found = _STATUS_LINE.fullmatch(status_line)
        if found is None:
            raise NotHttp(f"the answer starts with {status_line[:20]!r}")
        headers: dict[bytes, bytes] = {}
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon or not name or name != name.strip():
                raise NotHttp(f"{line[:40]!r} is no header")
            name, value = name.lower(), value.strip()
            headers[name] = value if name not in headers else headers[name] + b", " + value
        return int(found[1]), int(found[2]), headers

    def _body(self, headers: dict[bytes, bytes]) -> bytes:
        coding = headers.get(b"transfer-encoding")
        if coding is not None:
            if coding.lower() != b"chunked":
                raise NotHttp(f"the body comes as {coding[:40]!r}, which was not asked for")
            return self._chunked()
        length = headers.get(b"content-length")
        if length is not None:
            if not _LENGTH.fullmatch(length):
                raise NotHttp(f"{length[:40]!r} is no length")
            return self._exactly(int(length))
        self.reusable = False
        return self._rest()

    def _chunked(self) -> bytes:
        chunks: list[bytes] = []
        while True:
            found = _CHUNK_SIZE.fullmatch(self._line())
            if found is None:
                raise NotHttp("a chunk has no size")
            size = int(found[1], 16)
            if not size:
                break
            chunks.append(self._exactly(size))
            if self._line():
                raise NotHttp("a chunk is longer than its size")
        while self._line():
            pass  # Headers after the body say nothing that matters here.
        return b"".join(chunks)

    def _line(self) -> bytes:
        while (end := self._unread.find(b"\r\n")) < 0:
            if len(self._unread) > _LONGEST_LINE:
                raise NotHttp("a line has no end")
            self._unread += self._more()
        line, self._unread = self._unread[:end], self._unread[end + 2 :]
        return line

    def _exactly(self, size: int) -> bytes:
        parts, missing = [self._unread[:size]], size - len(self._unread)
        self._unread = self._unread[size:]
        while missing > 0:
            part = self._more()
            parts.append(part[:missing])
            self._unread = part[missing:]
            missing -= len(part)
        return b"".join(parts)

    def _rest(self) -> bytes:
        parts = [self._unread]
        self._unread = b""
        while part := self._sock.recv(_AT_ONCE):
            parts.append(part)
        return b"".join(parts)

    def _more(self) -> bytes:
        part = self._sock.recv(_AT_ONCE)
        if not part:
            raise HungUp("the connection was closed before the answer was complete")
        return part
