"""The API without a socket, asked like a server."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

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
    return responses[0]
