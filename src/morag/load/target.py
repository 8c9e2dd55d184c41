"""The server under load: its address, its requests as bytes, and single requests to prepare it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import json

from morag.client.errors import ServerUnreachable, UnexpectedAnswer
from morag.client.server_uris import parse_server_uri
from morag.errors import BadRequest, MoragError
from morag.load.driver import Client, drive
from morag.load.http_framing import body_of, status_of

if TYPE_CHECKING:
    from morag.load.driver import Address, Steps


class Target:
    """A server that was found by its URI."""

    def __init__(self, uri: str) -> None:
        server = parse_server_uri(uri)
        if server.is_secure:
            raise BadRequest(
                "The load is sent over plain HTTP: name the http:// port of the server"
            )
        self.address: Address = (server.host, server.port)
        self._base = server.api
        self._headers = (
            f" HTTP/1.1\r\nHost: {server.authority}\r\nAccept: application/json\r\n"
            "Accept-Encoding: identity\r\nNessie-Client-Spec: 2\r\n"
        )
        self._post_headers = (
            self._headers + "Content-Type: application/json\r\nContent-Length: "
        ).encode()

    def get(self, path: str) -> bytes:
        return self._without_body("GET", path)

    def delete(self, path: str) -> bytes:
        return self._without_body("DELETE", path)

    def post(self, path: str, body: bytes) -> bytes:
        start = f"POST {self._base}/{path}".encode()
        return b"".join((start, self._post_headers, b"%d\r\n\r\n" % len(body), body))

    def ask(self, request: bytes) -> Any:
        """Send one request over a new connection, and decode the response."""
        responses: list[bytes] = []

        def once() -> Steps:
            responses.append((yield request, 1))

        outcome = drive(self.address, [Client(once())])
        if outcome.failures:
            line = request.partition(b" HTTP/1.1\r\n")[0].decode()
            raise _problem(outcome.shown_failures[0], line)
        return json.decode(body_of(responses[0]))

    def _without_body(self, method: str, path: str) -> bytes:
        return f"{method} {self._base}/{path}{self._headers}\r\n".encode()


def _problem(failure: str, line: str) -> MoragError:
    if not failure.startswith("HTTP/"):
        return ServerUnreachable(failure)
    method, _, url = line.partition(" ")
    message = failure.partition("\r\n\r\n")[2]
    return UnexpectedAnswer(message, http_status=status_of(failure), method=method, url=url)
