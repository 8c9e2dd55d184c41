"""In which turn of the event loop a response that was not ready at first is delivered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from morag.api.http import Request, Response
from tests.server.edge_on_socket import DONE, Started, serving

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST = Request("GET", "/")


def test_a_response_that_is_ready_while_it_is_started_is_delivered_in_the_next_turn() -> None:
    async def scenario() -> None:
        delivered: list[Response] = []
        async with serving(lambda _: DONE) as server:
            server.edge.start(REQUEST, Started(lambda _, done: done(DONE)), delivered.append)
            assert delivered == []
            await asyncio.sleep(0)  # One turn.
            assert delivered == [DONE]

    asyncio.run(scenario())


def test_a_response_that_is_finished_on_the_loop_later_is_delivered_in_the_same_turn() -> None:
    async def scenario() -> None:
        delivered: list[Response] = []
        waiting: list[Callable[[Response], None]] = []
        async with serving(lambda _: DONE) as server:
            later = Started(lambda _, done: waiting.append(done))
            server.edge.start(REQUEST, later, delivered.append)
            await asyncio.sleep(0)
            assert delivered == []
            waiting.pop()(DONE)
            assert delivered == [DONE]

    asyncio.run(scenario())
