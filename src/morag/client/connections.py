"""Connections to one server, kept open between requests and shared by threads, on urllib3.

Only this module imports urllib3, and reads the proxy from the environment. It is loaded with the
first `Client`, so that `import morag.client` stays fast.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping
from http.client import BadStatusLine, HTTPException, IncompleteRead, RemoteDisconnected
from queue import LifoQueue
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote
from urllib.request import (  # type: ignore[attr-defined] # The stubs lack one of them.
    getproxies_environment,
    proxy_bypass_environment,
)
from weakref import WeakSet

from msgspec import Struct
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, ProxyManager, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ClosedPoolError,
    EmptyPoolError,
    HTTPError,
    ReadTimeoutError,
)
from urllib3.exceptions import IncompleteRead as Truncated
from urllib3.util import make_headers, parse_url

from morag.client.errors import OUTCOME_UNKNOWN, OutcomeUnknown, ServerUnreachable
from morag.errors import BadRequest

if TYPE_CHECKING:
    from ssl import SSLContext

    from urllib3.response import BaseHTTPResponse

    from morag.client.server_uris import ServerUri

_LONGEST_CONNECT_SECONDS: Final = 10.0
_OTHER_HOST: Final = frozenset({62, 64})  # OpenSSL's codes for another name or IP address.


class Proxy(Struct, frozen=True):
    url: str
    variable: str = ""
    """The environment variable that names the proxy, unless the caller did."""

    def __repr__(self) -> str:
        return "Proxy()"  # The URL may contain a password.


class Reply(Struct, frozen=True):
    """A response as received. Lookups of header names ignore case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connections:
    """At most `size` connections. A thread that finds all of them busy waits for one.

    urllib3's own retries are off. A server may close an idle connection at the moment when the next
    request is sent: a repeatable request is then sent again on another connection. A write is never
    repeated, because the client cannot know whether the server has executed it.

    A forked process starts without connections: two processes that read from one connection would
    get each other's responses.
    """

    def __init__(
        self,
        server: ServerUri,
        tls: SSLContext | None,
        timeout_seconds: float,
        size: int,
        proxy: Proxy | None = None,
    ) -> None:
        self._server = server
        self._proxy_variable = "" if proxy is None else proxy.variable
        self._timeout_seconds = timeout_seconds
        self._connect_seconds = min(timeout_seconds, _LONGEST_CONNECT_SECONDS)
        self._size = size
        self._proxy = None if proxy is None else _proxy_manager(proxy)
        self._pool = self._new_pool(tls)
        # A proxy for plain http needs the whole URL; otherwise the path is sent.
        self._target = server.origin if self._proxy is not None and tls is None else ""
        _OPEN.add(self)

    def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        repeatable: bool,
    ) -> Reply:
        """Send a request and read the whole response."""
        while True:
            try:
                response = self._pool.urlopen(
                    method,
                    self._target + target,
                    body,
                    headers,
                    retries=False,
                    redirect=False,
                    assert_same_host=False,
                    pool_timeout=self._timeout_seconds,  # type: ignore[arg-type] # A float works.
                    decode_content=False,
                )
                return _complete(response)
            except EmptyPoolError as error:
                raise ServerUnreachable(
                    f"All {self._size} connections to {self._server.origin} were busy for "
                    f"{self._timeout_seconds:g} s: allow more of them, or raise timeout_seconds"
                ) from error
            except (ClosedPoolError, _Closed) as error:
                raise ServerUnreachable(f"The client of {self._server.origin} is closed") from error
            except _NotConnected as failed:
                raise ServerUnreachable(self._no_connection(failed)) from failed.error
            except _Lost as lost:
                # Each repetition uses up one idle connection, so the loop ends.
                if repeatable and lost.was_idle and not _is_timeout(lost.error):
                    continue
                raise self._lost(lost.error, repeatable) from lost.error
            except (HTTPError, HTTPException, OSError) as error:
                raise self._lost(error, repeatable) from error

    def close(self) -> None:
        """Requests that were sent finish. Threads that wait for a connection are refused."""
        queue: Any = self._pool.pool
        self._pool.close()
        if queue is not None:
            queue.close()

    def forget(self) -> None:
        """In a forked process: drop the connections, and the threads that waited for one.

        The queue is a new one, because a thread of the parent may have held the old one's lock.
        """
        queue: Any = self._pool.pool
        if queue is None:
            return
        inherited = [connection for connection in queue.queue if connection is not None]
        self._pool.pool = _full_queue(queue.maxsize)
        for connection in inherited:
            connection.close()  # Only this process's copy: the server does not notice.

    def _new_pool(self, tls: SSLContext | None) -> HTTPConnectionPool:
        server = self._server
        options: dict[str, Any] = {
            "maxsize": self._size,
            "block": True,
            "timeout": Timeout(connect=self._connect_seconds, read=self._timeout_seconds),
        }
        if tls is not None:
            options["ssl_context"] = tls
        pool: HTTPConnectionPool
        if self._proxy is not None:
            self._proxy.connection_pool_kw.update(options)
            pool = self._proxy.connection_from_host(server.host, server.port, server.scheme)
        elif tls is not None:
            pool = HTTPSConnectionPool(server.host, server.port, **options)
        else:
            pool = HTTPConnectionPool(server.host, server.port, **options)
        pool.pool = _full_queue(self._size)
        # Not by the scheme of the server: http through an https proxy needs TLS, too.
        pool.ConnectionCls = (
            _SecureConnection if isinstance(pool, HTTPSConnectionPool) else _Connection
        )
        pool.conn_kw["silent_seconds"] = self._timeout_seconds
        return pool

    def _no_connection(self, failed: _NotConnected) -> str:
        from ssl import SSLCertVerificationError, SSLError

        origin = self._server.origin
        cause = _cause(failed.error)
        is_certificate = isinstance(cause, SSLCertVerificationError)
        if self._proxy is not None and not (failed.reached_proxy and is_certificate):
            proxy = self._proxy.proxy
            assert proxy is not None, "a ProxyManager has a proxy"
            variable = self._proxy_variable
            advice = f" in {variable}, or add the host to NO_PROXY" if variable else ""
            return (
                f"No connection to {origin} through the proxy {proxy.host}:{proxy.port} ({cause}): "
                f"check the proxy{advice}"
            )
        if isinstance(cause, SSLCertVerificationError):
            if cause.verify_code in _OTHER_HOST:
                return (
                    f"The certificate of {origin} is for another host ({cause.verify_message}): "
                    "use a host name that the certificate names"
                )
            return (
                f"The certificate of {origin} is not trusted ({cause.verify_message}): if it is "
                "valid, pass the certificate of its authority as ca_file"
            )
        if isinstance(cause, ConnectionRefusedError):
            return f"Nothing listens at {origin}: check the address, and that the server is running"
        if isinstance(cause, socket.gaierror):
            return f"No host is called '{self._server.host}': check the address {origin}"
        if isinstance(cause, TimeoutError):
            return (
                f"No connection to {origin} within {self._connect_seconds:g} s: check the address, "
                "and whether a firewall is in between"
            )
        if isinstance(cause, SSLError):
            return (
                f"{origin} does not speak TLS as expected ({cause}): "
                "check that the port is for https, not for http"
            )
        return f"No connection to {origin} ({cause}): check the address and the network"

    def _lost(self, error: Exception, repeatable: bool) -> ServerUnreachable:
        """The error for a request that was sent, or partly sent, and got no complete response."""
        origin = self._server.origin
        cause = _cause(error)
        if _is_timeout(error):
            what = f"{origin} was silent for {self._timeout_seconds:g} s"
            advice = "it may be overloaded; timeout_seconds sets how long to wait"
        elif isinstance(cause, RemoteDisconnected | IncompleteRead | Truncated):
            what = f"{origin} closed the connection before it responded"
            advice = f"it may have been stopped, see its log{self._or_https(cause)}"
        elif isinstance(cause, OSError):
            what = f"The connection to {origin} broke ({cause})"
            advice = f"check the network, and that the server is running{self._or_https(cause)}"
        else:
            what = f"{origin} does not respond in HTTP ({' '.join(str(cause).split())[:80]})"
            advice = "check the address, the port and the scheme"
        if repeatable:
            return ServerUnreachable(f"{what}: {advice}")
        return OutcomeUnknown(f"{what}: {advice}. {OUTCOME_UNKNOWN}")

    def _or_https(self, cause: BaseException) -> str:
        """Further advice if plain HTTP got no response, as on a port for TLS."""
        is_plain = not self._server.is_secure and isinstance(cause, ConnectionResetError)
        return "; or it expects https" if is_plain else ""


def proxy_from_environment(server: ServerUri) -> Proxy | None:
    """`HTTP_PROXY` or `HTTPS_PROXY`, unless `NO_PROXY` names the host or it is this machine."""
    proxies = getproxies_environment()
    kind = server.scheme if proxies.get(server.scheme) else "all"
    proxy = proxies.get(kind)
    if not proxy or _is_loopback(server.host):
        return None
    if proxy_bypass_environment(server.authority, proxies):
        return None
    variable = f"{kind}_proxy"
    return Proxy(proxy, variable if variable in os.environ else variable.upper())


class _Closed(Exception):
    """The client was closed while a thread waited for a connection."""


class _Queue(LifoQueue[HTTPConnection | None]):
    """The idle connections of a pool; None stands for one that is not open yet.

    urllib3 wakes no waiting thread when a pool is closed, so closing this queue does.
    """

    is_closed = False

    def close(self) -> None:
        with self.mutex:
            self.is_closed = True
            self.not_empty.notify_all()

    def _qsize(self) -> int:
        return 1 if self.is_closed else super()._qsize()

    def _get(self) -> HTTPConnection | None:
        if self.is_closed:
            raise _Closed
        return super()._get()


def _full_queue(size: int) -> _Queue:
    queue = _Queue(size)
    for _ in range(size):
        queue.put(None)
    return queue


class _NotConnected(Exception):
    """No connection was made, so nothing was sent. `reached_proxy`: a proxy was reached."""

    def __init__(self, error: Exception, reached_proxy: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.reached_proxy = reached_proxy


class _Lost(Exception):
    """The connection ended before the response. `was_idle`: it had earlier responses."""

    def __init__(self, error: Exception, was_idle: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.was_idle = was_idle


class _Connection(HTTPConnection):
    """Separates failures to connect from failures after sending, which urllib3 does not.

    urllib3 does not handle these exceptions, so they reach `Connections.send` unchanged.
    """

    def __init__(self, *args: Any, silent_seconds: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._silent_seconds = silent_seconds
        self._answered = False

    def connect(self) -> None:
        try:
            super().connect()
        except (HTTPError, HTTPException, OSError) as error:
            raise _NotConnected(error, self.has_connected_to_proxy) from error
        self._answered = False
        self.sock.settimeout(self._silent_seconds)  # Or the connect time-out limits sending, too.

    def request(self, *args: Any, **options: Any) -> None:
        if self.sock is not None:  # urllib3 would limit sending by the connect time-out.
            self.timeout = self._silent_seconds
        try:
            super().request(*args, **options)
        except (BrokenPipeError, ConnectionResetError):
            raise  # urllib3 then reads the response: a server may refuse a long request early.
        except (HTTPError, HTTPException, OSError) as error:
            raise _Lost(error, self._answered) from error

    def getresponse(self) -> Any:
        was_idle, self._answered = self._answered, True
        try:
            return super().getresponse()
        except (HTTPError, HTTPException, OSError) as error:
            raise _Lost(error, was_idle) from error


class _SecureConnection(_Connection, HTTPSConnection):
    pass


def _complete(response: BaseHTTPResponse) -> Reply:
    headers = response.headers
    body: bytes = response.data
    if response.status == 200 and not body and not _declares_no_body(headers):
        # If a connection ends within the headers, the standard library returns a response
        # without a body.
        raise _Lost(RemoteDisconnected("the response ended within its headers"), False)
    return Reply(response.status, headers, body)


def _declares_no_body(headers: Mapping[str, str]) -> bool:
    chunked = headers.get("transfer-encoding", "").lower() == "chunked"
    return chunked or headers.get("content-length") == "0"


def _proxy_manager(proxy: Proxy) -> ProxyManager:
    try:
        auth = parse_url(proxy.url).auth
        headers = None if auth is None else make_headers(proxy_basic_auth=unquote(auth))
        return ProxyManager(proxy.url, 1, proxy_headers=headers)
    except (HTTPError, ValueError):  # Without the URL, which may contain a password.
        name = f"The proxy in {proxy.variable}" if proxy.variable else "The proxy"
        raise BadRequest(f"{name} must be like http://host:port or https://host:port") from None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _cause(error: BaseException) -> BaseException:
    """The error that urllib3 has wrapped, perhaps more than once."""
    if isinstance(error, IncompleteRead | Truncated | BadStatusLine):
        return error
    inner = error.__cause__ or next(
        (each for each in error.args if isinstance(each, BaseException)), None
    )
    return error if inner is None or inner is error else _cause(inner)


def _is_timeout(error: Exception) -> bool:
    return isinstance(error, ReadTimeoutError) or isinstance(_cause(error), TimeoutError)


_OPEN: Final[WeakSet[Connections]] = WeakSet()


def _forget_all() -> None:
    for connections in tuple(_OPEN):
        connections.forget()


if hasattr(os, "register_at_fork"):  # Missing on systems without fork.
    os.register_at_fork(after_in_child=_forget_all)
