"""Calls of the API without a socket."""

from __future__ import annotations

from queue import Queue
from typing import TYPE_CHECKING

from msgspec.structs import replace

from morag.api.app import Api
from morag.api.http import Memo, Piece, Request, Response
from morag.api.later import run
from tests.spawners import in_thread
from tests.wire.transcripts import Reply, SentRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.versions.repository import Repository


def api_caller(
    repository: Repository, *, store_is_remote: bool = False
) -> Callable[[SentRequest], Reply]:
    api = Api(repository, store_is_remote=store_is_remote)
    memos: dict[object, Memo] = {}  # GET requests share them, as in the server.

    def ask(sent: SentRequest) -> Reply:
        headers = [(name.lower().encode(), value.encode()) for name, value in sent.headers]
        request = Request(sent.method, sent.path, sent.query, headers, sent.body or b"")
        if sent.method == "GET":
            head = sent.path, sent.query, tuple(headers)
            request.memo = memos.setdefault(head, request.memo)
        response = answered(api, request)
        decoded = {name.decode(): value.decode() for name, value in response.headers}
        return Reply(response.status, decoded, b"" if sent.method == "HEAD" else response.body)

    return ask


def answered(api: Api, request: Request) -> Response:
    """The complete answer to a request."""
    answer = api.answer(request)
    if isinstance(answer, Response):
        return answer
    responses: list[Response] = []
    on_loop: Queue[Callable[[], None]] = Queue()

    def spawn(work: Callable[[], None], *, brief: bool = False, near: bool = False) -> None:
        if near:
            on_loop.put(work)
        else:
            in_thread(work)

    def done(response: Response) -> None:
        on_loop.put(lambda: responses.append(response))

    run(answer, spawn, done, lambda error: api.failure(request, error))
    while not responses:
        on_loop.get(timeout=60)()  # This thread stands for the event loop.
    return whole(responses[0])


def whole(response: Response) -> Response:
    """The response with all pieces of its stream, as a client receives it."""
    if response.stream is None:
        return response
    bodies, is_last = [response.body], False
    arrived: Queue[Piece | Exception] = Queue()
    while not is_last:
        response.stream.next(arrived.put)
        piece = arrived.get(timeout=60)
        assert isinstance(piece, Piece), f"the answer was cut short by {piece!r}"
        bodies.append(piece.body)
        is_last = piece.is_last
    return replace(response, body=b"".join(bodies), stream=None)
