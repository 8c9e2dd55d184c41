"""`morag import --from`: a store filled from a running server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from random import Random
from threading import Event
from typing import TYPE_CHECKING

import msgspec
import pytest

import morag
from morag.backend.urls import open_backend
from morag.cli.main import MISUSED, main
from morag.client import Client
from morag.config import Settings
from morag.errors import ImportUnderWay, RepositoryExists
from morag.model.configs import GarbageCollectorConfig
from morag.model.content import Namespace
from morag.model.keys import ContentKey
from morag.model.meta import CommitMeta
from morag.model.operations import Delete, Put
from morag.versions.transfer.catalog_source import CatalogSource, PullOptions
from morag.versions.transfer.importing import Importer, ImportOptions
from morag.versions.world import World
from tests.nessie.catalogs import NOTHING, InProcess
from tests.nessie.work import Work, table
from tests.safety.history_checks import in_thread
from tests.sampling import seeds
from tests.server_process import Served, run
from tests.transfer.comparing import assert_same
from tests.transfer.generated_history import generate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from morag.versions.repository import Repository
    from morag.versions.transfer.importing import ImportReport
    from tests.nessie.catalogs import Seen

EXISTS = 100
CONFIG = GarbageCollectorConfig(default_cutoff_policy="P10D")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server on a catalog with everything that there can be."""
    store = f"sqlite:{tmp_path / 'source.db'}?sync=off"
    with morag.open(store) as repo:
        Work(InProcess(repo), "us").do(commits=10, bulk=30)
        _odd(repo)
        generate(repo, 100, seed=1)
        repo.set_repository_config(CONFIG)
    with Served(tmp_path, store=store) as server:
        yield server


def _odd(repo: Repository) -> None:
    """Keys, names and metadata that are easily changed on the way."""
    meta = CommitMeta(
        message="\u200b zero width, \x07 bell, and a line\nbreak",
        authors=("", "Zoë <z@example.org>"),
        signed_off_by=("",),
        author_time="1969-12-31T23:59:59.999999Z",
        properties={"two": ("1", "2"), "empty": ("",), "Ünï": ("\u200b",), "a": ("b",)},
    )
    names = ("a.b", "\u200bzero", "\uff5e", "\U0001f600", "x%2Fy", "*", "**", "{}[]", "-", "~1")
    operations = [Put(ContentKey.of(name, name), table(1)) for name in names]
    repo.commit("main", [Put(ContentKey.of(name), Namespace.of("n")) for name in names], "spaces")
    repo.commit("main", operations, meta)
    repo.commit("main", [Delete(ContentKey.of("a.b", "a.b"))], "")
    repo.references.create_branch("empty", None)
    repo.references.create_tag("nothing/yet", f"@{NOTHING}")


def pull(served: Served, store: str, *flags: str, directory: Path) -> dict[str, int]:
    command = ["import", "--from", served.url, "--store", store, "--json", *flags]
    done = run(*command, directory=directory)
    assert done.returncode == 0, done.stderr
    report: dict[str, int] = json.loads(done.stdout)
    return report


def seen(repo: Repository) -> Seen:
    """Everything but the time at which the repository was created."""
    return msgspec.structs.replace(InProcess(repo).seen(), config=None)


def assert_pulled(store: str, source: str) -> None:
    with morag.open(source, read_only=True) as expected, morag.open(store) as repo:
        assert seen(repo).differences(seen(expected)) == []
        assert InProcess(repo).damage() == []


@pytest.mark.parametrize("engine", ["sqlite", "rocksdb"])
def test_a_pulled_store_equals_its_source(served: Served, tmp_path: Path, engine: str) -> None:
    store = f"{engine}:{tmp_path / 'pulled'}"
    report = pull(served, store, directory=tmp_path)
    assert_pulled(store, served.store)
    with morag.open(store) as repo, Client(served.url) as source:
        assert repo.repository_config() == CONFIG
        assert repo.references.moves(10_000).items == source.references.moves(10_000).items
        assert report["references"] == len(list(source.references.list()))
        assert report["commits"] > 150


def test_a_pulled_store_is_served_and_responds_in_the_same_way(
    served: Served, tmp_path: Path
) -> None:
    store = f"sqlite:{tmp_path / 'pulled.db'}"
    pull(served, store, directory=tmp_path)
    paths = ["/api/v2/trees?fetch=ALL", "/api/v1/trees", "/api/v2/config/repository"]
    with Client(served.url) as client:
        hashes = {reference.hash for reference in client.references.list()}
    for hash in sorted(hashes):
        paths += [
            f"/api/v2/trees/@{hash}/history?fetch=ALL",
            f"/api/v2/trees/@{hash}/entries?content=true",
            f"/api/v2/trees/main/diff/@{hash}",
            f"/api/v1/trees/tree/DETACHED/log?endHash={hash}&fetch=ALL",
        ]
    with Served(tmp_path, store=store) as pulled:
        for path in paths:
            expected, found = (server.ask("GET", path) for server in (served, pulled))
            assert expected.status == 200
            assert found.body == expected.body, path
        with Client(pulled.url) as client:
            result = client.commit("main", [Put(ContentKey.of("new"), table(1))], "goes on")
            assert client.references.get("main").hash == result.hash


def test_chosen_references_are_pulled_alone(served: Served, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'pulled.db'}"
    report = pull(served, store, "--refs", "main", "rel/*", directory=tmp_path)
    with morag.open(store) as repo:
        assert [reference.name for reference in repo.references.list()] == ["main", "rel/us"]
        assert {move.reference.name for move in repo.references.moves(10_000).items} == {
            "main",
            "rel/us",
        }
        assert InProcess(repo).damage() == []
    assert report["references"] == 2


def test_a_default_branch_of_another_name_is_kept(tmp_path: Path) -> None:
    with (
        Served(tmp_path, "--default-branch", "trunk") as served,
        Client(served.url) as client,
    ):
        client.commit("trunk", [Put(ContentKey.of("a"), table(1))], "a")
        store = f"sqlite:{tmp_path / 'pulled.db'}"
        pull(served, store, directory=tmp_path)
        with morag.open(store) as repo:
            assert repo.default_branch == "trunk"
            assert [reference.name for reference in repo.references.list()] == ["trunk"]


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds("kill seeds"))
def test_a_pull_that_was_killed_is_resumed(tmp_path: Path, seed: int) -> None:
    source = f"sqlite:{tmp_path / 'source.db'}?sync=off"
    with morag.open(source) as repo:
        generate(repo, 2000, seed)
    store = f"sqlite:{tmp_path / 'pulled.db'}"
    with Served(tmp_path, store=source) as served:
        command = ["import", "--from", served.url, "--store", store]
        process = subprocess.Popen([sys.executable, "-m", "morag", *command], cwd=tmp_path)
        while process.poll() is None and not _has_commits(store):
            time.sleep(0.01)
        time.sleep(Random(seed).random() / 10)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        with pytest.raises(ImportUnderWay):
            morag.open(store)
        again = run(*command, directory=tmp_path)
        assert again.returncode == EXISTS
        assert "--resume" in again.stderr
        report = pull(served, store, "--resume", directory=tmp_path)
        assert 0 < report["found"] < report["commits"]
    with morag.open(source, read_only=True) as expected, morag.open(store) as repo:
        assert assert_same(repo, expected) == report["commits"]


def _has_commits(store: str) -> bool:
    """Whether an import has stored commits, beside those of its own references."""
    backend = open_backend(store)
    try:
        return len(list(backend.scan_rows("", frozenset({"c"})))) > 2
    finally:
        backend.close()


def test_an_interrupted_pull_goes_on_with_the_commits_that_are_missing(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'pulled.db'}"
    with morag.open("memory:") as repo:
        generate(repo, 700, seed=3)
        with pytest.raises(KeyboardInterrupt):
            import_from(repo, store, stop_at="commits")
        with pytest.raises(RepositoryExists, match="--resume"):
            import_from(repo, store)
        repo.commit("main", [Put(ContentKey.of("later"), table(1))], "later")
        report = import_from(repo, store, resume=True)
        assert 0 < report.found < report.commits
        with morag.open(store) as pulled:
            assert assert_same(pulled, repo, sampled=4) == report.commits


def test_references_that_changed_during_an_interruption_are_pulled_as_they_are_then(
    tmp_path: Path,
) -> None:
    store = f"sqlite:{tmp_path / 'pulled.db'}"
    with morag.open("memory:") as repo:
        repo.commit("main", [Put(ContentKey.of("a"), table(1))], "a")
        for name in ("dropped", "moved", "kept"):
            repo.references.create_branch(name, "main")
        repo.set_repository_config(CONFIG)
        with pytest.raises(KeyboardInterrupt):
            import_from(repo, store, stop_at="references")
        repo.commit("main", [Put(ContentKey.of("b"), table(1))], "b")
        repo.references.delete("dropped")
        repo.references.assign("moved", "main")
        import_from(repo, store, resume=True)
        with morag.open(store) as pulled:
            assert seen(pulled).differences(seen(repo)) == []
            assert pulled.repository_config() == CONFIG
            pulled.references.create_branch("dropped", "main")


def test_a_pull_is_resumed_from_the_same_repository_only(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'pulled.db'}"
    with morag.open("memory:") as repo, morag.open("memory:") as another:
        repo.commit("main", [Put(ContentKey.of("a"), table(1))], "a")
        with pytest.raises(KeyboardInterrupt):
            import_from(repo, store, stop_at="read")
        with pytest.raises(RepositoryExists, match="of another source"):
            import_from(another, store, resume=True)
        import_from(repo, store, resume=True)


def import_from(
    repo: Repository, store: str, *, resume: bool = False, stop_at: str | None = None
) -> ImportReport:
    def show(stage: str, done: int) -> None:
        if stage == stop_at:
            raise KeyboardInterrupt

    backend = open_backend(store)
    options = PullOptions(identity=f"repository {id(repo)}")
    try:
        with CatalogSource(repo, options, time.sleep, show) as source:
            importer = Importer(backend, Settings(), World(), ImportOptions(resume=resume), show)
            return importer.run(source)
    finally:
        backend.close()


def test_a_server_that_changes_meanwhile_does_no_harm(served: Served, tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'pulled.db'}"
    ended = Event()

    def change() -> int:
        number = 0
        with Client(served.url) as client:
            while not ended.is_set():
                number += 1
                key = ContentKey.of(f"later{number}")
                client.commit("main", [Put(key, table(number))], f"later {number}")
                client.references.create_branch(f"later-{number}", "main")
                if number > 2:
                    client.references.delete(f"later-{number - 2}")
        return number

    changes = in_thread(change)
    pull(served, store, directory=tmp_path)
    ended.set()
    assert changes.result(60) > 1
    with morag.open(store) as repo, Client(served.url) as source:
        assert InProcess(repo).damage() == []
        assert [*repo.history.hashes("main")] == [
            *source.history.hashes(f"@{repo.references.get('main').hash}")
        ]


def test_a_branch_that_is_dropped_after_the_start_is_pulled() -> None:
    with morag.open("memory:") as repo:
        repo.commit("main", [Put(ContentKey.of("a"), table(1))], "a")
        repo.references.create_branch("dev", "main")
        head = repo.commit("dev", [Put(ContentKey.of("b"), table(2))], "b").hash
        with CatalogSource(repo, PullOptions(), time.sleep) as source:
            repo.references.delete("dev")
            assert head in {commit.id.hex() for commit in source.commits(ordered=True)}
            assert {ref.name: ref.pointer.hex() for ref in source.references()} == {
                "refs/heads/main": repo.references.get("main").hash,
                "refs/heads/dev": head,
            }


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], "--from"),
        (["export", "--from", "http://127.0.0.1:1"], "not both"),
        (["export", "--connections", "2"], "--connections belongs to --from"),
        (["--from", "http://127.0.0.1:1", "--connections", "0"], "--connections"),
    ],
)
def test_wrong_flags_are_named(
    flags: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["import", *flags, "--store", "memory:"])
    except SystemExit as end:
        code = int(end.code or 0)
    assert code == MISUSED
    assert expected in capsys.readouterr().err


def test_a_server_that_cannot_be_reached_leaves_the_store_alone(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'pulled.db'}"
    done = run("import", "--from", "http://127.0.0.1:1", "--store", store, directory=tmp_path)
    assert done.returncode == 1
    assert "Nothing listens" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_repository_is_not_overwritten(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'pulled.db'}"
    with morag.open(store) as repo:
        repo.commit("main", [Put(ContentKey.of("a"), table(1))], "a")
    with Served(tmp_path) as served:
        done = run("import", "--from", served.url, "--store", store, directory=tmp_path)
    assert done.returncode == EXISTS
    with morag.open(store) as repo:
        assert len(list(repo.history.log("main"))) == 1
