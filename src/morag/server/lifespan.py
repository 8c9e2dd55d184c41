"""What a serving process opens when it starts, and closes when it stops."""

from __future__ import annotations

import asyncio
import gc
import logging
from traceback import format_exception
from typing import TYPE_CHECKING, Any, Final

import morag
from morag.api.app import Api
from morag.api.call import Limits
from morag.errors import MoragError
from morag.masking import masked
from morag.server.edge import Edge
from morag.server.memory import limit_arenas
from morag.server.sockets import CannotServe
from morag.server.stores import has_files, hiding, is_embedded, is_in_memory

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from morag.config import ServerSettings, Settings
    from morag.versions.repository import Repository

_MOST_SECONDS_BETWEEN_CHECKS: Final = 1.0
_SECONDS_BETWEEN_STORE_CHECKS: Final = 2.0
_OBJECTS_BETWEEN_COLLECTIONS: Final = 20_000  # A request leaves hardly any cycles behind.

logger = logging.getLogger(__name__)


class Lifespan:
    """An ASGI application that knows only how to start and to stop.

    uvicorn hands its state to every connection, and the edge in it. Before it is opened it can be
    sent to another process.
    """

    def __init__(self, settings: Settings, server: ServerSettings, *, loopback_only: bool) -> None:
        self.complete = True
        self._settings = settings
        self._server = server
        self._loopback_only = loopback_only
        self._repository: Repository | None = None

    def open(self) -> None:
        limit_arenas()  # Here, because every process comes along.
        try:
            self._repository = morag.open(self._server.store, self._settings)
        except MoragError:
            raise
        except Exception as error:  # noqa: BLE001 - Drivers raise what they like.
            reason = hiding(self._server.store)(f"{type(error).__name__}: {error}")
            raise CannotServe(f"Cannot open '{masked(self._server.store)}' ({reason})") from None

    def close(self) -> None:
        if self._repository is not None:
            self._repository.close()
            self._repository = None

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        assert scope["type"] == "lifespan", "connections answer for themselves"
        await receive()
        try:
            edge = scope["state"]["edge"] = self._edge()
        except Exception as error:  # noqa: BLE001 - Whatever it is, it is logged.
            known = isinstance(error, MoragError)
            reason = str(error) if known else "".join(format_exception(error)).rstrip()
            logger.error("Cannot start: %s", hiding(self._server.store)(reason))
            await send({"type": "lifespan.startup.failed"})
            return
        gc.freeze()  # What is here by now stays: never look at it again.
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])
        checking = [asyncio.create_task(_check_connections(edge))]
        if has_files(self._server.store):
            checking.append(asyncio.create_task(_check_store(edge)))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for task in checking:
            task.cancel()
        if await edge.finish():
            self.close()
        else:
            # Closing the store now would take it from under the threads that still use it.
            self.complete = False
            logger.error("Stopped with %d requests unfinished", edge.pending)
        await send({"type": "lifespan.shutdown.complete"})

    def _edge(self) -> Edge:
        if self._repository is None:
            self.open()
        repository = self._repository
        assert repository is not None
        hide = hiding(self._server.store)
        api = Api(
            repository,
            stack_traces=self._server.stack_traces,
            hide=hide,
            threads=self._server.threads,
            store_is_far=not is_embedded(self._server.store),
            limits=Limits(max_operations=self._server.max_operations),
        )

        def check_store() -> object:
            try:
                repository.check_store()
            except MoragError as error:
                api.report(error, "A check of the store")
                raise
            return api.damage

        return Edge(
            api,
            self._server,
            never_waits=is_in_memory(self._server.store),
            loopback_only=self._loopback_only,
            check_store=check_store,
            hide=hide,
        )


async def _check_store(edge: Edge) -> None:
    """Let an embedded store notice that its files are gone, although nobody asks for readiness.

    Until then it would acknowledge commits that the next start cannot read.
    """
    while True:
        await asyncio.sleep(_SECONDS_BETWEEN_STORE_CHECKS)
        edge.check_store()


async def _check_connections(edge: Edge) -> None:
    """One timer for all connections costs a request nothing, unlike one timer for each."""
    settings = edge.settings
    shortest = min(settings.idle_timeout_seconds, settings.slow_client_seconds)
    pause = min(_MOST_SECONDS_BETWEEN_CHECKS, shortest / 4)
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(pause)
        edge.descriptors.check()
        for connection in tuple(edge.connections):
            try:
                connection.check(loop.time())
            except Exception:  # One that cannot be checked must not keep the others from it.
                logger.exception("Checking a connection failed")
