"""Several servers of Morag and Nessie on one database, also when the network fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

import morag
from morag import CommitMeta, ContentKey, Delete, Put
from tests.nessie.catalogs import InProcess, OverRest, assert_same
from tests.nessie.server import Server
from tests.nessie.work import SIZES, Work, table
from tests.sampling import Sample, is_chosen
from tests.server_process import Served
from tests.stores.history import History
from tests.stores.proxy import Faults, Proxy
from tests.stores.registry import DATABASES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.nessie.catalogs import Catalog
    from tests.stores.conftest import Running
    from tests.stores.databases import EmptyStore
    from tests.stores.servers.postgres import PostgresServer

pytestmark = pytest.mark.stores

SERVER: Final = "postgres"
"""The database of the tests that use only one."""
_WITH_NESSIE: Final = [name for name, each in DATABASES.items() if each.runs_nessie]
RACE_ENGINES: Final = Sample(sorted(_WITH_NESSIE, key=lambda name: name != SERVER), always=1)
"""The engines whose race takes `SECONDS`: `SERVER` every day, the others on one day of seven."""
CLIENTS: Final = 16
SECONDS: Final = 60
FEW_SECONDS: Final = 15
"""For the engines that are not in today's sample of `RACE_ENGINES`."""
LEAST_SHARE: Final = 0.1
LONG_BRANCHES: Final = 8
LONG_COMMITS: Final = 250
FAULTY_SECONDS: Final = 20
DOWN_SECONDS: Final = 5
IMPATIENT: Final = "timeout_seconds=2"


def test_two_servers_agree_on_one_history(
    store: EmptyStore, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    engine = request.node.callspec.params["store"]
    with Served(tmp_path, store=store.url) as one, Served(tmp_path, store=store.url) as other:
        history = History([one.url, other.url], CLIENTS)
        history.prepare()
        history.run(SECONDS if is_chosen(RACE_ENGINES, engine) else FEW_SECONDS)
        history.check()
        assert min(history.shares()) > LEAST_SHARE


def test_nessie_and_morag_continue_each_others_stores(store: EmptyStore, tmp_path: Path) -> None:
    sizes = SIZES["small"]
    with Server(store.nessie, tmp_path / "first.log", sizes.theirs) as server:
        nessie = OverRest(server)
        Work(nessie, "them").do(sizes.commits, sizes.their_bulk)
        _fill(nessie)
        shown = nessie.seen()
    with morag.open(store.url, sizes.ours) as repository:
        ours = InProcess(repository)
        assert_same(ours, shown)
        Work(ours, "us").do(sizes.commits, sizes.our_bulk)
        assert ours.damage() == []
        shown = ours.seen()
    with Server(store.nessie, tmp_path / "second.log", sizes.theirs) as server:
        assert_same(OverRest(server), shown)


def test_nessie_and_morag_serve_one_store_together(running: Running, tmp_path: Path) -> None:
    store = running.new_store(SERVER)
    with (
        Server(store.nessie, tmp_path / "nessie.log", {}) as nessie,
        Served(tmp_path, store=store.url) as ours,
    ):
        history = History([ours.url, nessie.uri], CLIENTS)
        history.prepare()
        history.run(SECONDS)
        history.check()


@pytest.mark.parametrize("store", ["postgres", "mariadb", "dynamodb"], indirect=True)
def test_nothing_is_lost_when_the_network_fails(store: EmptyStore, tmp_path: Path) -> None:
    with Proxy(store.address) as proxy:
        url = store.url_at(proxy.address, IMPATIENT)
        with Served(tmp_path, store=url) as one, Served(tmp_path, store=url) as other:
            history = History([one.url, other.url], CLIENTS)
            history.prepare()
            proxy.faults = Faults(before=0.005, after=0.005, late=0.002, seconds=3)
            history.run(FAULTY_SECONDS)
            proxy.faults = Faults()
            assert set(proxy.done) == {"before", "after", "late"}
            history.check()


def test_the_server_recovers_when_the_database_was_killed(running: Running, tmp_path: Path) -> None:
    store = running.new_store(SERVER)
    with Served(tmp_path, store=store.url) as one, Served(tmp_path, store=store.url) as other:
        history = History([one.url, other.url], CLIENTS)
        history.prepare()
        with _crashing(running[SERVER]):
            history.run(FAULTY_SECONDS)
        assert [attempt for attempt in history.attempts if not attempt.hash]
        history.check()
        after = len(history.attempts)
        history.run(3)
        assert any(attempt.hash for attempt in history.attempts[after:])
        history.check()


def _fill(catalog: Catalog) -> None:
    """Fill several branches at the same time with thousands of commits."""

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
def _crashing(server: PostgresServer) -> Iterator[None]:
    """Crash the server during the `with` block, and start it again soon after."""

    def crash() -> None:
        server.crash()
        Timer(DOWN_SECONDS, server.start).run()

    timer = Timer(FAULTY_SECONDS / 3, crash)
    timer.start()
    try:
        yield
    finally:
        timer.join()
