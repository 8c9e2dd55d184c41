"""Runs the server: one process, or several that share the sockets."""

from __future__ import annotations

import logging
import signal
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from morag.backend.urls import StoreUrl
from morag.masking import masked
from morag.server.accepting import Acceptor, ConnectionCounts
from morag.server.connection import Connection
from morag.server.lifespan import Lifespan
from morag.server.sockets import CannotServe, allow_files, are_loopback, bound, check_tls, url_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator
    from socket import socket

    from morag.config import ServerSettings, Settings

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_START_SECONDS: Final = 60.0
_NO_AUTHENTICATION: Final = (
    "Morag has no authentication yet: everyone who can reach port %d of this machine can read and"
    " change everything. Keep it in a private network, or behind a proxy that authenticates."
)

logger = logging.getLogger(__name__)


def serve(settings: Settings, server: ServerSettings) -> int:
    """Serve until a signal stops it. Returns the exit code; raises if it cannot start.

    The port is bound first, because that is cheap and fails often. A client that connects while the
    store is opened waits.
    """
    if server.workers > 1 and StoreUrl.parse(server.store).traits.private:
        raise CannotServe(
            f"{server.workers} workers cannot share '{masked(server.store)}', which belongs to one"
            " process; use --workers 1, or a store that processes can share, such as sqlite:PATH"
        )
    if server.tls_cert:
        check_tls(server.tls_cert, server.tls_key)
    allow_files(server.max_connections)
    sockets = bound(server.host, server.port)
    try:
        loopback_only = are_loopback(sockets)
        lifespan = Lifespan(settings, server, loopback_only=loopback_only)
        lifespan.open()
        if not loopback_only:
            logger.warning(_NO_AUTHENTICATION, sockets[0].getsockname()[1])
        run = _run_many if server.workers > 1 else _run_one
        return run(server, lifespan, sockets)
    finally:
        for listening in sockets:
            listening.close()


def _run_one(server: ServerSettings, lifespan: Lifespan, sockets: list[socket]) -> int:
    running = _Server(_config(server, lifespan), _ready_printer(server, sockets))
    try:
        running.run(sockets)
    except SystemExit:  # uvicorn failed, and the reason was logged.
        lifespan.close()
        return 1
    except BaseException:
        lifespan.close()
        raise
    if not running.started:
        lifespan.close()
        return 1
    return 0 if lifespan.complete and not running.force_exit else 1


def _run_many(server: ServerSettings, lifespan: Lifespan, sockets: list[socket]) -> int:
    lifespan.close()  # It was opened to find mistakes; each worker opens its own.
    workers = _Workers(_config(server, lifespan), sockets, _ready_printer(server, sockets))
    workers.run()
    return 0 if workers.started and workers.complete else 1


def _config(server: ServerSettings, lifespan: Lifespan) -> uvicorn.Config:
    return uvicorn.Config(
        lifespan,
        interface="asgi3",
        http="morag.server.connection:Connection",
        ws="none",
        lifespan="on",
        workers=server.workers,
        log_config=None,
        log_level="critical",  # All of uvicorn's messages have a replacement here.
        access_log=False,
        proxy_headers=False,
        forwarded_allow_ips="",  # Otherwise uvicorn reads it from the environment.
        server_header=False,
        timeout_graceful_shutdown=server.shutdown_seconds,  # type: ignore[arg-type] # Any number.
        ssl_certfile=server.tls_cert or None,
        ssl_keyfile=server.tls_key or None,
    )


def _ready_printer(server: ServerSettings, sockets: list[socket]) -> Callable[[], None]:
    url = url_of(server.host, sockets[0].getsockname()[1], bool(server.tls_cert))

    def print_ready() -> None:
        sys.stdout.write(f"morag ready on {url} store={masked(server.store)}\n")
        sys.stdout.flush()

    return print_ready


class _Server(uvicorn.Server):
    """Prints the ready line, and stops with exit code 0 on a signal."""

    def __init__(self, config: uvicorn.Config, print_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._print_ready = print_ready

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._print_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not raise signals again at the end: stopping on a signal is not a failure."""
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _WorkerServer(_Server):
    """Accepts its share of the connections."""

    def __init__(self, config: uvicorn.Config, counts: ConnectionCounts, number: int) -> None:
        super().__init__(config, lambda: None)
        self._counts, self._number = counts, number
        self._acceptors: list[Acceptor] = []

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup([])
        self._acceptors = [
            Acceptor(listening, self._new_connection, self.config.ssl, self._is_my_turn)
            for listening in sockets or ()
        ]

    async def on_tick(self, counter: int) -> bool:
        self._count()  # Connections may have ended: it may be this worker's turn to accept.
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        self._counts.remove(self._number)
        for acceptor in self._acceptors:
            await acceptor.close()
        await super().shutdown(sockets)

    def _new_connection(self) -> asyncio.Protocol:
        return Connection(self.config, self.server_state, self.lifespan.state)

    def _is_my_turn(self) -> bool:
        self._count()
        return self._counts.is_least(self._number)

    def _count(self) -> None:
        self._counts.update(self._number, len(self.server_state.connections))


class _Worker(Process):
    """A process that serves. Its exit code is 0 if it finished every accepted request."""

    def __init__(
        self, config: uvicorn.Config, sockets: list[socket], counts: ConnectionCounts, number: int
    ) -> None:
        super().__init__(config, sockets)
        self._counts, self._number = counts, number

    @property
    def server(self) -> uvicorn.Server:
        if self._server is None:
            self._server = _WorkerServer(self.config, self._counts, self._number)
        return self._server

    def target(self, sockets: list[socket] | None = None) -> None:
        super().target(sockets)
        lifespan = self.config.app
        assert isinstance(lifespan, Lifespan)
        sys.exit(0 if lifespan.complete and not self.server.force_exit else 1)

    def always_pong(self) -> None:
        with suppress(EOFError, OSError):  # The other end is closed when the worker must stop.
            super().always_pong()


class _Workers(Multiprocess):
    """Restarts processes that die, and replaces them one by one on SIGHUP."""

    def __init__(
        self, config: uvicorn.Config, sockets: list[socket], print_ready: Callable[[], None]
    ) -> None:
        super().__init__(config, sockets)
        self.started = False
        self._print_ready = print_ready
        self._all_finished = True
        self._counts = ConnectionCounts(config.workers)

    @property
    def complete(self) -> bool:
        """Whether all workers finished their accepted requests, except those that died."""
        return self._all_finished and all(_finished(worker) for worker in self.processes)

    def init_processes(self) -> None:
        self.processes = [self._new(number) for number in range(self.processes_num)]
        self.started = all(
            worker.wait_until_ready(_START_SECONDS, self.should_exit) for worker in self.processes
        )
        if self.started:
            self._print_ready()
        else:
            self.should_exit.set()

    def keep_subprocess_alive(self) -> None:
        for index, worker in enumerate(self.processes):
            if self.should_exit.is_set() or worker.is_alive(self._patience_seconds):
                continue
            hangs = worker.process.is_alive()
            worker.kill()
            worker.join()
            if worker.exitcode == STARTUP_FAILURE:  # The next one would fail as well.
                logger.error("Worker %s could not start; stopping", worker.pid)
                self.should_exit.set()
                return
            how = "does not respond" if hangs else f"died ({_end_of(worker.exitcode)})"
            self.processes[index] = self._new(index)
            successor = self.processes[index].pid
            logger.error("Worker %s %s; %s takes its place", worker.pid, how, successor)

    def restart_all(self) -> None:
        for index, worker in enumerate(self.processes):
            successor = self._new(index)
            if not successor.wait_until_ready(_START_SECONDS, self.should_exit):
                successor.kill()
                successor.join()
                if not self.should_exit.is_set():
                    logger.error("No new worker is ready in time; worker %s stays", worker.pid)
                return
            worker.terminate()
            worker.join()
            self._all_finished &= _finished(worker)
            self.processes[index] = successor

    def handle_ttin(self) -> None:
        self.processes_num += 1
        self.processes.append(self._new(len(self.processes)))

    @property
    def _patience_seconds(self) -> float:
        return self.config.timeout_worker_healthcheck

    def _new(self, number: int) -> _Worker:
        # A successor has the number of its predecessor. Workers added by a signal share numbers,
        # too: their counts are then less exact.
        number %= self.config.workers
        worker = _Worker(self.config, self.sockets, self._counts, number)
        worker.start()
        return worker


def _finished(worker: Process) -> bool:
    """Whether a worker ended properly. SIGTERM kills only workers that do not serve yet."""
    return worker.exitcode in (0, -signal.SIGTERM)


def _end_of(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"by signal {-exit_code}"
    return f"exit code {exit_code}"
