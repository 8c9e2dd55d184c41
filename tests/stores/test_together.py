"""Several servers on one database, ours and the original's, also where the network fails."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Final

import pytest

import morag
from tests.original.catalogs import InProcess, OverRest
from tests.original.server import Server
from tests.original.test_same_disk import SIZES, assert_same
from tests.original.work import Work
from tests.serving import Served
from tests.stores.engines import on_postgres
from tests.stores.history import History
from tests.stores.proxy import Faults, Proxy
from tests.wire.asking import asking
from tests.wire.transcripts import replay, scenarios

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.stores.engines import Engine
    from tests.stores.servers.postgres import PostgresServer

pytestmark = pytest.mark.stores

CLIENTS: Final = 16
SECONDS: Final = 60
FAULTY_SECONDS: Final = 20
DOWN_SECONDS: Final = 5
IMPATIENT: Final = "timeout_seconds=2"


def test_two_servers_tell_one_story(engine: Engine, tmp_path: Path) -> None:
    with Served(tmp_path, store=engine.url) as one, Served(tmp_path, store=engine.url) as other:
        history = History([one.url, other.url], CLIENTS)
        history.prepare()
        history.run(SECONDS)
        history.check()


def test_we_go_on_from_the_original_and_it_goes_on_from_us(engine: Engine, tmp_path: Path) -> None:
    sizes = SIZES["small"]
    with Server(engine.original, tmp_path / "first.log", sizes.theirs) as server:
        original = OverRest(server)
        Work(original, "them").do(sizes.commits, sizes.their_bulk)
        shown = original.seen()
    with morag.open(engine.url, sizes.ours) as repository:
        ours = InProcess(repository)
        assert_same(ours, shown)
        Work(ours, "us").do(sizes.commits, sizes.our_bulk)
        assert ours.damage() == []
        shown = ours.seen()
    with Server(engine.original, tmp_path / "second.log", sizes.theirs) as server:
        assert_same(OverRest(server), shown)


def test_the_original_and_we_at_once(postgres_server: PostgresServer, tmp_path: Path) -> None:
    engine = on_postgres(postgres_server)
    with (
        Server(engine.original, tmp_path / "original.log", {}) as original,
        Served(tmp_path, store=engine.url) as ours,
    ):
        history = History([ours.url, original.uri], CLIENTS)
        history.prepare()
        history.run(SECONDS)
        history.check()


@pytest.mark.parametrize("engine", ["postgres", "mariadb", "dynamodb"], indirect=True)
def test_nothing_is_lost_where_the_network_fails(engine: Engine, tmp_path: Path) -> None:
    with Proxy(engine.address) as proxy:
        separator = "&" if "?" in engine.after else "?"
        url = f"{engine.url_at(proxy.address)}{separator}{IMPATIENT}"
        with Served(tmp_path, store=url) as one, Served(tmp_path, store=url) as other:
            history = History([one.url, other.url], CLIENTS)
            history.prepare()
            proxy.faults = Faults(before=0.005, after=0.005, late=0.002, seconds=3)
            history.run(FAULTY_SECONDS)
            proxy.faults = Faults()
            assert set(proxy.done) == {"before", "after", "late"}
            history.check()


def test_the_server_recovers_when_the_database_was_killed(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    engine = on_postgres(postgres_server)
    with Served(tmp_path, store=engine.url) as one, Served(tmp_path, store=engine.url) as other:
        history = History([one.url, other.url], CLIENTS)
        history.prepare()
        with _falls_down(postgres_server):
            history.run(FAULTY_SECONDS)
        assert [attempt for attempt in history.attempts if not attempt.hash]
        history.check()
        after = len(history.attempts)
        history.run(3)
        assert any(attempt.hash for attempt in history.attempts[after:])
        history.check()


def test_we_answer_like_the_original(engine: Engine) -> None:
    """The recorded conversations, in one go."""
    with morag.open(engine.url) as repository:
        ask = asking(repository)
        for scenario in scenarios():
            replay(scenario, ask)


@contextmanager
def _falls_down(server: PostgresServer) -> Iterator[None]:
    """In the middle of what happens in the `with` block, and comes back soon after."""

    def fall() -> None:
        server.crash()
        Timer(DOWN_SECONDS, server.start).run()

    falling = Timer(FAULTY_SECONDS / 3, fall)
    falling.start()
    try:
        yield
    finally:
        falling.join()
