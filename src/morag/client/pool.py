"""Connections to one server, kept open between requests and shared by threads."""

from __future__ import annotations

import os
import socket
from threading import Semaphore
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from morag.client.errors import OutcomeUnknown, ServerUnreachable
from morag.client.http1 import Connection, HungUp, NotHttp

if TYPE_CHECKING:
    from ssl import SSLContext

    from morag.client.http1 import Reply
    from morag.client.uris import ServerUri

_LONGEST_CONNECT_SECONDS: Final = 10.0


class Pool:
    """At most `size` connections. Who finds all of them busy waits for one.

    A connection that was used before may have been closed by the server just now. A request that
    may be repeated is then sent again on another one; one that changes something never is, because
    nobody knows how far it got.

    A process that was forked starts with none: two processes that read from one connection would
    get each other's answers.
    """

    def __init__(
        self, server: ServerUri, tls: SSLContext | None, timeout_seconds: float, size: int
    ) -> None:
        self._server = server
        self._tls = tls
        self._timeout_seconds = timeout_seconds
        self._size = size
        self._free = Semaphore(size)
        self._idle: list[Connection] = []
        self._closed = False
        _POOLS.add(self)

    def ask(self, request: bytes, *, repeatable: bool) -> Reply:
        if not self._free.acquire(timeout=self._timeout_seconds):
            raise ServerUnreachable(
                f"All {self._size} connections to {self._server.origin} were busy for "
                f"{self._timeout_seconds:g} s: allow more of them, or raise timeout_seconds"
            )
        try:
            while True:
                connection = self._take_idle()
                used_before = connection is not None
                if connection is None:
                    connection = self._connect()
                try:
                    return self._asked(connection, request)
                except TimeoutError as error:
                    raise self._lost(error, repeatable) from error
                except (OSError, NotHttp) as error:
                    # Each time there is one idle connection less, so this comes to an end.
                    if not (repeatable and used_before):
                        raise self._lost(error, repeatable) from error
        finally:
            self._free.release()

    def close(self) -> None:
        """Requests that are under way finish."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def forget(self) -> None:
        """In a process that was forked: connections, and those who wait for one, are not ours."""
        self._free = Semaphore(self._size)
        for connection in self._idle:
            connection.close()  # Of our copy, which nobody on the other side takes notice of.
        self._idle = []

    def _asked(self, connection: Connection, request: bytes) -> Reply:
        try:
            reply = connection.ask(request)
        except BaseException:  # Also when interrupted: the answer may still come, and to whom?
            connection.close()
            raise
        if connection.reusable and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()
        return reply

    def _take_idle(self) -> Connection | None:
        if self._closed:
            raise ServerUnreachable(f"The client of {self._server.origin} is closed")
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.is_idle():
                return connection
            connection.close()

    def _connect(self) -> Connection:
        server, tls = self._server, self._tls
        seconds = min(self._timeout_seconds, _LONGEST_CONNECT_SECONDS)
        try:
            plain = socket.create_connection((server.host, server.port), seconds)
        except OSError as error:
            raise ServerUnreachable(self._no_connection(error, seconds)) from error
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is None:
                return Connection(plain, self._timeout_seconds)
            return self._secured(plain, tls)
        except BaseException:
            plain.close()
            raise

    def _secured(self, plain: socket.socket, tls: SSLContext) -> Connection:
        from ssl import SSLCertVerificationError, SSLWantReadError

        origin = self._server.origin
        try:
            secured = tls.wrap_socket(plain, server_hostname=self._server.host)
        except SSLCertVerificationError as error:
            raise ServerUnreachable(
                f"The certificate of {origin} is not trusted ({error.verify_message}): if it is "
                "right, pass the certificate of its authority as ca_file"
            ) from error
        except OSError as error:
            raise ServerUnreachable(
                f"{origin} does not speak TLS as expected ({error}): "
                "check that the port is that of https, not of http"
            ) from error
        return Connection(secured, self._timeout_seconds, (BlockingIOError, SSLWantReadError))

    def _no_connection(self, error: OSError, seconds: float) -> str:
        origin = self._server.origin
        if isinstance(error, ConnectionRefusedError):
            return f"Nothing listens at {origin}: check the address, and that the server is running"
        if isinstance(error, socket.gaierror):
            return f"No host is called '{self._server.host}': check the address {origin}"
        if isinstance(error, TimeoutError):
            return (
                f"No connection to {origin} within {seconds:g} s: check the address, "
                "and whether a firewall is in between"
            )
        return f"No connection to {origin} ({error}): check the address and the network"

    def _lost(self, error: Exception, repeatable: bool) -> ServerUnreachable:
        """Something was sent, and no answer came back."""
        origin = self._server.origin
        if isinstance(error, TimeoutError):
            what = f"{origin} was silent for {self._timeout_seconds:g} s"
            advice = "it may be overloaded; timeout_seconds says how long to wait"
        elif isinstance(error, HungUp):
            what = f"{origin} hung up before it had answered"
            advice = "it may have been stopped; its log may tell"
        elif isinstance(error, NotHttp):
            what = f"{origin} does not answer in HTTP ({error})"
            advice = "check the address, the port and the scheme"
        else:
            what = f"The connection to {origin} broke ({error})"
            advice = "check the network, and that the server is running"
        if repeatable:
            return ServerUnreachable(f"{what}: {advice}")
        return OutcomeUnknown(
            f"{what}: {advice}. Whether the change was made is unknown: "
            "look before you try it again"
        )


_POOLS: Final[WeakSet[Pool]] = WeakSet()


def _forget_all() -> None:
    for pool in tuple(_POOLS):
        pool.forget()


if hasattr(os, "register_at_fork"):  # Where there is no fork, there is no need.
    os.register_at_fork(after_in_child=_forget_all)
