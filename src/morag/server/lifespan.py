"""Opens the store and the edge when a server process starts, and closes them when it stops."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import sys
from traceback import format_exception
from typing import TYPE_CHECKING, Any, Final

import morag
from morag.api.app import Api
from morag.api.call import Limits
from morag.backend.urls import StoreUrl
from morag.errors import MoragError
from morag.masking import hiding, masked
from morag.server.edge import Edge
from morag.server.sockets import CannotServe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from morag.config import ServerSettings, Settings
    from morag.versions.repository import Repository

_MOST_SECONDS_BETWEEN_CHECKS: Final = 1.0
_SECONDS_BETWEEN_STORE_CHECKS: Final = 2.0
_OBJECTS_BETWEEN_COLLECTIONS: Final = 20_000  # A request leaves hardly any cycles behind.

_SWITCH_SECONDS: Final = 0.0005
"""How long a thread that has synced waits for the interpreter, if the event loop is busy with
commits. Nothing is acknowledged before that; Python's own interval is ten times as long."""

_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2

logger = logging.getLogger(__name__)


class Lifespan:
    """An ASGI application that handles only the start and the stop of the process.

    uvicorn passes its state, which has the edge, to every connection. Before `open` a lifespan can
    be sent to another process.
    """

    def __init__(self, settings: Settings, server: ServerSettings, *, loopback_only: bool) -> None:
        self.complete = True
        self._settings = settings
        self._server = server
        self._loopback_only = loopback_only
        self._repository: Repository | None = None

    def open(self) -> None:
        _limit_arenas()  # Here, because every process calls this method.
        try:
            self._repository = morag.open(self._server.store, self._settings)
        except MoragError:
            raise
        except Exception as error:  # noqa: BLE001 - Drivers raise exceptions of their own.
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
        assert scope["type"] == "lifespan", "requests do not use ASGI"
        await receive()
        try:
            edge = scope["state"]["edge"] = self._edge()
        except Exception as error:  # noqa: BLE001 - uvicorn must be informed.
            known = isinstance(error, MoragError)
            reason = str(error) if known else "".join(format_exception(error)).rstrip()
            logger.error("Cannot start: %s", hiding(self._server.store)(reason))
            await send({"type": "lifespan.startup.failed"})
            return
        gc.freeze()  # These objects live as long as the process: the collector can skip them.
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])
        checking = [asyncio.create_task(_check_connections(edge))]
        if StoreUrl.parse(self._server.store).traits.has_files:
            checking.append(asyncio.create_task(_check_store(edge)))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for task in checking:
            task.cancel()
        if await edge.finish():
            self.close()
        else:
            # The store must not be closed while threads use it.
            self.complete = False
            logger.error("Stopped with %d requests unfinished", edge.pending)
        await send({"type": "lifespan.shutdown.complete"})

    def _edge(self) -> Edge:
        if self._repository is None:
            self.open()
        repository = self._repository
        assert repository is not None
        hide = hiding(self._server.store)
        traits = StoreUrl.parse(self._server.store).traits
        if repository.writes_quickly:
            sys.setswitchinterval(_SWITCH_SECONDS)
        api = Api(
            repository,
            stack_traces=self._server.stack_traces,
            hide=hide,
            threads=self._server.threads,
            store_is_remote=not traits.embedded,
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
            writes_quickly=repository.writes_quickly,
            loopback_only=self._loopback_only,
            check_store=check_store,
            hide=hide,
        )


async def _check_store(edge: Edge) -> None:
    """Let an embedded store notice that its files are gone, even without readiness checks.

    Until it notices, it acknowledges commits that the next start cannot read.
    """
    while True:
        await asyncio.sleep(_SECONDS_BETWEEN_STORE_CHECKS)
        edge.check_store()


async def _check_connections(edge: Edge) -> None:
    """Check all connections with one timer, which costs a request nothing."""
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
            except Exception:  # A bug in one connection must not end the time-outs of the others.
                logger.exception("Checking a connection failed")


def _limit_arenas() -> None:
    """Make glibc's malloc use two arenas for all threads.

    With its default of several per core, the memory of a server with many threads keeps growing
    under load. This must be called before threads start. Other C libraries have no such setting.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_ARENA_MAX, _ARENAS)
