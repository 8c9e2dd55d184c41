"""Several servers on one database, ours and the original's, also where the network fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

import morag
from morag import CommitMeta, ContentKey, Delete, Put
from tests.original.catalogs import InProcess, OverRest
from tests.original.server import Server
from tests.original.test_same_disk import SIZES, assert_same
from tests.original.work import Work, table
from tests.serving import Served
from tests.stores.engines import on_postgres
from tests.stores.history import History
from tests.stores.proxy import Faults, Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.original.catalogs import Catalog
    from tests.stores.engines import Engine
    from tests.stores.servers.postgres import PostgresServer

pytestmark = pytest.mark.stores

CLIENTS: Final = 16
SECONDS: Final = 60
LEAST_SHARE: Final = 0.1
LONG_BRANCHES: Final = 8
LONG_COMMITS: Final = 250
FAULTY_SECONDS: Final = 20
DOWN_SECONDS: Final = 5
IMPATIENT: Final = "timeout_seconds=2"


def test_two_servers_tell_one_story(engine: Engine, tmp_path: Path) -> None:
    with Served(tmp_path, store=engine.url) as one, Served(tmp_path, store=engine.url) as other:
        history = History([one.url, other.url], CLIENTS)
        history.prepare()
        history.run(SECONDS)
        history.check()
        assert min(history.shares()) > LEAST_SHARE


def test_we_go_on_from_the_original_and_it_goes_on_from_us(engine: Engine, tmp_path: Path) -> None:
    sizes = SIZES["small"]
    with Server(engine.original, tmp_path / "first.log", sizes.theirs) as server:
        original = OverRest(server)
        Work(original, "them").do(sizes.commits, sizes.their_bulk)
        _fill(original)
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
        url = engine.url_at(proxy.address, IMPATIENT)
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


def _fill(catalog: Catalog) -> None:
    """Some long branches, by as many clients at the same time: commits in thousands."""

    def work(number: int) -> None:
        branch, made = f"long-{number}", dict[str, str]()
        for n in range(LONG_COMMITS):
            name = f"long_{n % 100:03d}"
            key, id = ContentKey.of(name), made.get(name)
            drops = id is not None and n % 7 == 0
            operation = Delete(key) if drops else Put(key, replace(table(n), id=id))
            added = catalog.commit(branch, [operation], CommitMeta(message=f"{branch} {n}"))
            if drops:
                del made[name]
            elif id is None:
                made[name] = added[key]

    for number in range(LONG_BRANCHES):
        catalog.create("BRANCH", f"long-{number}", catalog.head("main"))
    with ThreadPoolExecutor(LONG_BRANCHES) as threads:
        for done in [threads.submit(work, number) for number in range(LONG_BRANCHES)]:
            done.result()


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
