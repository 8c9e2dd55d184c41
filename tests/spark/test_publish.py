"""A branch is published if its checks pass, and kept if anything fails."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from morag import ContentKey, Put, ReferenceAlreadyExists, ReferenceConflict, ReferenceNotFound
from morag.client import Client, OutcomeUnknown, ServerUnreachable, UnexpectedAnswer
from morag.errors import ServiceUnavailable, StoreBusy
from morag.model.names import NO_ANCESTOR_HASH
from morag.spark import CannotRun
from morag.spark import publish as publishing
from morag.spark.lake_catalog import LakeCatalog
from morag.spark.publish import ChecksFailed, branch
from tests.spark.scratch_branch import Branch, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from morag.errors import MoragError
    from morag.model.merging import MergeResult
    from morag.model.references import Reference
    from morag.spark.publish import Check
    from tests.server_process import Served

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # PySpark leaves sockets open.

_CATALOG = "spark.sql.catalog.lake"


@pytest.fixture
def main(served: Served, request: pytest.FixtureRequest) -> Iterator[Branch]:
    with Client(served.url) as client:
        main = Branch(client, served.url, request.node.name)
        main.commit("before")
        yield main


@pytest.fixture
def lake(spark: SparkSession, served: Served, main: Branch) -> Iterator[SparkSession]:
    """A session with a Nessie catalog that is not used, because that would need Iceberg's jar."""
    settings = {
        _CATALOG: "org.apache.iceberg.spark.SparkCatalog",
        f"{_CATALOG}.catalog-impl": "org.apache.iceberg.nessie.NessieCatalog",
        f"{_CATALOG}.uri": f"{served.url}/api/v1",
        f"{_CATALOG}.ref": main.name,
    }
    for setting, value in settings.items():
        spark.conf.set(setting, value)
    yield spark
    for setting in settings:
        spark.conf.unset(setting)


def write(main: Branch, on: object, *keys: str) -> None:
    for key in keys:
        main.client.commit(str(on), [Put(ContentKey.of(key), table(1))], f"write {key}")


def keys(main: Branch, ref: str | None = None) -> list[str]:
    return [str(key) for key in main.client.contents.keys(ref or main.name)]


def exists(main: Branch, name: str) -> bool:
    try:
        return main.client.references.get(name).hash != ""
    except ReferenceNotFound:
        return False


def test_a_branch_that_passes_its_checks_is_merged_and_deleted(
    lake: SparkSession, main: Branch
) -> None:
    seen = []

    def nothing_is_wrong(spark: SparkSession) -> DataFrame:
        seen.append((spark.conf.get(f"{_CATALOG}.ref"), keys(main)))
        return spark.range(0)

    etl = f"{main.name}_etl"
    checks: list[Check] = ["SELECT * FROM range(5) WHERE id > 9", nothing_is_wrong]
    with branch(lake, etl, main.name, checks=checks, message="the message of the merge") as draft:
        assert str(draft) == etl
        assert lake.conf.get(f"{_CATALOG}.ref") == etl
        write(main, draft, "one", "two")
    assert seen == [(etl, ["before"])]  # The check ran on the branch, before the merge.
    assert keys(main) == ["before", "one", "two"]
    assert main.messages() == ["before", "the message of the merge"]
    assert draft.published == main.head
    assert draft.outcome == f"Branch '{etl}' is published: '{main.name}' is at {main.head}"
    assert not exists(main, etl)
    assert lake.conf.get(f"{_CATALOG}.ref") == main.name


def test_a_branch_is_kept_for_inspection_if_a_check_finds_rows(
    lake: SparkSession, main: Branch
) -> None:
    def too_many(spark: SparkSession) -> DataFrame:
        return spark.range(7)

    etl = f"{main.name}_etl"
    failing = "SELECT id AS bad\n  FROM range(2) WHERE id > 0"
    with (
        pytest.raises(ChecksFailed) as error,
        branch(lake, etl, main.name, checks=[failing, too_many, "SELECT 1 WHERE false"]) as draft,
    ):
        write(main, draft, "one")
    first, second = error.value.found
    assert first == "Check 'SELECT id AS bad FROM range(2) WHERE id > 0' found {'bad': 1}"
    assert second.startswith("Check 'too_many' found {'id': 0}, {'id': 1}")
    assert second.endswith(" and more")
    assert error.value.__notes__ == [draft.outcome]
    assert f"Branch '{etl}' was kept for inspection" in draft.outcome
    assert keys(main) == ["before"]
    assert keys(main, etl) == ["before", "one"]
    assert draft.published is None
    assert lake.conf.get(f"{_CATALOG}.ref") == main.name

    with (
        pytest.raises(ReferenceAlreadyExists, match="pass replace=True"),
        branch(lake, etl, main.name),
    ):
        pytest.fail("an existing branch was reused")
    with branch(lake, etl, main.name, replace=True, keep=True) as draft:
        write(main, draft, "better")
    assert keys(main) == keys(main, etl) == ["before", "better"]


def test_an_exception_is_passed_on_with_the_outcome_as_a_note(
    lake: SparkSession, main: Branch
) -> None:
    etl = f"{main.name}_etl"
    with pytest.raises(KeyError) as error, branch(lake, etl, main.name) as draft:
        write(main, draft, "one")
        raise KeyError("a bug")
    assert error.value.__notes__ == [draft.outcome]
    assert keys(main) == ["before"]
    assert keys(main, etl) == ["before", "one"]


def test_a_conflict_with_another_commit_publishes_nothing(lake: SparkSession, main: Branch) -> None:
    etl = f"{main.name}_etl"
    with (
        pytest.raises(ReferenceConflict) as error,
        branch(lake, etl, main.name) as draft,
    ):
        write(main, draft, "same", "one")
        write(main, main.name, "same")
    assert "changed in conflict: 'same'" in str(error.value)
    assert error.value.__notes__ == [draft.outcome]
    assert keys(main) == ["before", "same"]
    assert exists(main, etl)


def test_a_branch_that_changes_during_its_checks_is_not_published(
    lake: SparkSession, main: Branch
) -> None:
    etl = f"{main.name}_etl"

    def intruder(spark: SparkSession) -> DataFrame:
        write(main, etl, "unseen")
        return spark.range(0)

    with (
        pytest.raises(ReferenceConflict, match="changed while it was checked"),
        branch(lake, etl, main.name, checks=[intruder]) as draft,
    ):
        write(main, draft, "one")
    assert keys(main) == ["before"]


def test_an_unchanged_branch_is_not_merged(lake: SparkSession, main: Branch) -> None:
    head = main.head
    with branch(lake, f"{main.name}_etl", main.name) as draft:
        pass
    assert main.head == head
    assert draft.outcome.startswith("Nothing was written")
    assert not exists(main, draft.name)


def test_a_branch_is_published_into_an_empty_one(lake: SparkSession, main: Branch) -> None:
    """A merge would fail, because there is no common ancestor."""
    main.client.references.assign(main.name, f"@{NO_ANCESTOR_HASH}")
    with branch(lake, f"{main.name}_etl", main.name) as draft:
        write(main, draft, "first")
    assert keys(main) == ["first"]
    assert not exists(main, draft.name)


def test_the_current_namespace_and_temporary_views_are_kept(
    lake: SparkSession, main: Branch
) -> None:
    lake.sql("CREATE DATABASE IF NOT EXISTS of_work")
    lake.sql("USE of_work")
    lake.range(3).createOrReplaceTempView("kept")
    with branch(lake, f"{main.name}_etl", main.name):
        assert lake.catalog.currentDatabase() == "of_work"
        assert lake.table("kept").count() == 3
    assert lake.catalog.currentDatabase() == "of_work"
    lake.sql("USE default")
    lake.sql("DROP DATABASE of_work")


def test_a_missing_or_ambiguous_catalog_is_refused(lake: SparkSession, main: Branch) -> None:
    with (
        pytest.raises(CannotRun, match=r"set spark\.sql\.catalog\.other to"),
        branch(lake, "etl", catalog="other"),
    ):
        pytest.fail("an unknown catalog was accepted")
    lake.conf.set("spark.sql.catalog.more.type", "nessie")
    try:
        with (
            pytest.raises(CannotRun, match="2 Nessie catalogs: name one of lake, more"),
            branch(lake, "etl"),
        ):
            pytest.fail("one of two catalogs was chosen")
    finally:
        lake.conf.unset("spark.sql.catalog.more.type")
    lake.conf.unset(f"{_CATALOG}.catalog-impl")
    with pytest.raises(CannotRun, match="no Nessie catalog: set"), branch(lake, "etl"):
        pytest.fail("a session without a Nessie catalog was accepted")
    assert not exists(main, "etl")


@pytest.mark.parametrize("name", [None, "lake"])
def test_a_rest_catalog_is_refused(lake: SparkSession, main: Branch, name: str | None) -> None:
    lake.conf.unset(f"{_CATALOG}.catalog-impl")
    lake.conf.set(f"{_CATALOG}.type", "rest")
    try:
        with (
            pytest.raises(CannotRun, match=r"'lake' is one of Iceberg's REST .*lake_nessie to"),
            branch(lake, "etl", catalog=name),
        ):
            pytest.fail("a REST catalog was accepted")
    finally:
        lake.conf.unset(f"{_CATALOG}.type")
    assert not exists(main, "etl")


def test_a_session_of_spark_connect_is_refused_before_a_branch_is_made(main: Branch) -> None:
    connect: Any = object()  # Any object that is not a session of Spark itself.
    with pytest.raises(CannotRun, match="Spark Connect"), branch(connect, "etl", main.name):
        pytest.fail("a session of Spark Connect was accepted")
    assert not exists(main, "etl")


def test_a_check_that_returns_nothing_is_an_error(lake: SparkSession, main: Branch) -> None:
    before = main.head
    with (
        pytest.raises(CannotRun, match="returned no DataFrame"),
        branch(lake, f"{main.name}-none", into=main.name, checks=[lambda _: None]),
    ):
        pass
    assert main.head == before
    with (
        pytest.raises(CannotRun, match="are a list"),
        branch(lake, f"{main.name}-text", into=main.name, checks="SELECT 1"),
    ):
        pass


def test_a_branch_is_not_published_into_itself(lake: SparkSession, main: Branch) -> None:
    """Otherwise it would be deleted after the merge."""
    with (
        pytest.raises(CannotRun, match="into itself"),
        branch(lake, main.name, main.name, replace=True),
    ):
        pytest.fail("the branch is its own target")
    assert keys(main) == ["before"]


def test_settings_of_a_catalog_are_not_shown(lake: SparkSession) -> None:
    lake.conf.set(f"{_CATALOG}.authentication.token", "hush")
    try:
        catalog = LakeCatalog.of(lake, "lake")
    finally:
        lake.conf.unset(f"{_CATALOG}.authentication.token")
    assert catalog.origin().token == "hush"
    assert repr(catalog) == "LakeCatalog('lake')"


def test_the_target_must_exist(lake: SparkSession, main: Branch) -> None:
    with pytest.raises(ReferenceNotFound, match="'absent'"), branch(lake, "etl", "absent"):
        pytest.fail("a missing target was accepted")
    assert not exists(main, "etl")


class InterferingCatalog:
    """Calls functions right after a branch was read, or was merged."""

    def __init__(
        self,
        client: Client,
        after_get: Callable[[], object] = lambda: None,
        after_merge: Callable[[], object] = lambda: None,
    ) -> None:
        self._client = client
        self._after_get, self._after_merge = after_get, after_merge
        self.references = self
        self.create_branch, self.assign = client.references.create_branch, client.references.assign
        self.delete = client.references.delete

    def get(self, name: str) -> Reference:
        found = self._client.references.get(name)
        self._after_get()
        return found

    def merge(self, *args: Any, **options: Any) -> MergeResult:
        merged = self._client.merge(*args, **options)
        self._after_merge()
        return merged

    def used_by(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(publishing, "opened", lambda *_, **__: nullcontext(self))


def test_a_replaced_branch_starts_at_the_commit_that_was_read(
    lake: SparkSession, main: Branch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise concurrent commits to the target would look like work on the branch."""
    etl = f"{main.name}_etl"
    main.client.references.create_branch(etl, None)
    reads = iter([lambda: write(main, main.name, "meanwhile")])
    InterferingCatalog(main.client, after_get=lambda: next(reads, int)()).used_by(monkeypatch)
    with branch(lake, etl, main.name, replace=True) as draft:
        assert keys(main, etl) == ["before"]
    assert draft.outcome.startswith("Nothing was written")
    assert main.messages() == ["before", "write meanwhile"]


def test_a_merge_succeeds_even_if_the_branch_cannot_be_deleted(
    lake: SparkSession, main: Branch, monkeypatch: pytest.MonkeyPatch
) -> None:
    etl = f"{main.name}_etl"
    gone = InterferingCatalog(main.client, after_merge=lambda: main.client.references.delete(etl))
    gone.used_by(monkeypatch)
    with branch(lake, etl, main.name) as draft:
        write(main, draft, "one")
    assert draft.published == main.head
    assert draft.outcome.startswith(f"Branch '{etl}' is published: '{main.name}' is at {main.head}")
    assert f"branch '{etl}' could not be deleted: " in draft.outcome


def test_the_outcome_of_an_interrupted_merge_is_unknown(
    lake: SparkSession, main: Branch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ctrl_c() -> None:
        raise KeyboardInterrupt

    InterferingCatalog(main.client, after_merge=ctrl_c).used_by(monkeypatch)
    with (
        pytest.raises(KeyboardInterrupt) as error,
        branch(lake, f"{main.name}_etl", main.name) as draft,
    ):
        write(main, draft, "one")
    assert "It is unknown whether branch" in draft.outcome
    assert error.value.__notes__ == [draft.outcome]
    assert keys(main) == ["before", "one"]


def _answer(status: int) -> UnexpectedAnswer:
    return UnexpectedAnswer("whatever", http_status=status, method="POST", url="http://lake")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (_answer(200), "It is unknown"),  # The response cannot be decoded.
        (_answer(302), "It is unknown"),
        (_answer(500), "It is unknown"),
        (_answer(502), "It is unknown"),
        (OutcomeUnknown("gone"), "It is unknown"),
        (ServiceUnavailable("the server's response for a busy store"), "It is unknown"),
        (StoreBusy("busy"), "It is unknown"),
        (_answer(403), "has none of its changes"),
        (ServerUnreachable("never sent"), "has none of its changes"),
        (ReferenceConflict("lost", ()), "has none of its changes"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_only_after_a_refusal_it_is_certain_that_nothing_was_merged(
    lake: SparkSession,
    main: Branch,
    monkeypatch: pytest.MonkeyPatch,
    error: MoragError,
    outcome: str,
) -> None:
    def answered() -> None:
        raise error

    InterferingCatalog(main.client, after_merge=answered).used_by(monkeypatch)
    with pytest.raises(type(error)), branch(lake, f"{main.name}_etl", main.name) as draft:
        write(main, draft, "one")
    assert outcome in draft.outcome


@pytest.fixture
def used(lake: SparkSession) -> Iterator[SparkSession]:
    """A session whose current catalog needs no jar."""
    settings = {
        _CATALOG: "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog",
        f"{_CATALOG}.driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
        f"{_CATALOG}.url": "jdbc:derby:memory:lake",
    }
    for setting, value in settings.items():
        lake.conf.set(setting, value)
    lake.sql("USE lake")
    yield lake
    lake.sql("USE spark_catalog.default")
    for setting in settings:
        lake.conf.unset(setting)


def test_the_catalog_is_restored_if_the_branch_cannot_be_loaded(
    used: SparkSession, main: Branch
) -> None:
    """Otherwise the next job would write to the branch."""
    used.conf.set(f"{_CATALOG}.driver", "no.such.Driver")
    with (
        pytest.raises(CannotRun, match="'lake' was in use and cannot be loaded again"),
        branch(used, f"{main.name}_etl", main.name),
    ):
        pytest.fail("the block ran although the catalog cannot be loaded")
    assert used.conf.get(f"{_CATALOG}.ref") == main.name


def test_a_current_catalog_that_cannot_be_loaded_again_is_reported(
    used: SparkSession, main: Branch
) -> None:
    """Otherwise names without a catalog would silently refer to the default catalog."""
    with (
        pytest.raises(CannotRun, match="'lake' was in use and cannot be loaded again") as error,
        branch(used, f"{main.name}_etl", main.name) as draft,
    ):
        write(main, draft, "one")
        used.conf.unset(_CATALOG)
    assert error.value.__notes__ == [draft.outcome]
    assert draft.published == main.head


def test_the_outcome_is_unknown_if_the_merge_and_the_catalog_fail(
    used: SparkSession, main: Branch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both_fail() -> None:
        used.conf.unset(_CATALOG)
        raise OutcomeUnknown("gone")

    InterferingCatalog(main.client, after_merge=both_fail).used_by(monkeypatch)
    with pytest.raises(CannotRun), branch(used, f"{main.name}_etl", main.name) as draft:
        write(main, draft, "one")
    assert "It is unknown whether branch" in draft.outcome
