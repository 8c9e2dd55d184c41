"""The API without a socket, asked like a server."""

from __future__ import annotations

from queue import Queue
from threading import Event
from typing import TYPE_CHECKING

from msgspec.structs import replace

from morag.api.app import Api
from morag.api.http import Request, Response
from tests.spawning import in_thread
from tests.wire.transcripts import Asked, Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.versions.repository import Repository


def asking(repository: Repository, *, store_is_far: bool = False) -> Callable[[Asked], Reply]:
    api = Api(repository, store_is_far=store_is_far)

    def ask(asked: Asked) -> Reply:
        headers = [(name.lower().encode(), value.encode()) for name, value in asked.headers]
        request = Request(asked.method, asked.path, asked.query, headers, asked.body or b"")
        response = answered(api, request)
        shown = {name.decode(): value.decode() for name, value in response.headers}
        return Reply(response.status, shown, b"" if asked.method == "HEAD" else response.body)

    return ask


def answered(api: Api, request: Request) -> Response:
    """The answer, however long it takes."""
    answer = api.answer(request)
    if isinstance(answer, Response):
        return answer
    responses: list[Response] = []
    arrived = Event()

    def done(response: Response) -> None:
        responses.append(response)
        arrived.set()

    answer.start(in_thread, done)
    assert arrived.wait(60), "no answer"
    return whole(responses[0])


def whole(response: Response) -> Response:
    """The response with the rest of it, as a client sees it in the end."""
    rest = response.rest
    if rest is None:
        return response
    bodies, is_last = [response.body], False
    arrived: Queue[tuple[bytes, bool] | None] = Queue()
    while not is_last:
        rest.next(lambda piece, last: arrived.put((piece, last)), lambda: arrived.put(None))
        piece = arrived.get(timeout=60)
        assert piece is not None, "the answer was cut short"
        bodies.append(piece[0])
        is_last = piece[1]
    return replace(response, body=b"".join(bodies), rest=None)
