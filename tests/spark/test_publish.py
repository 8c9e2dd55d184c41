"""A branch is published if its checks pass, and left alone if anything fails."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from morag import ContentKey, Put, ReferenceAlreadyExists, ReferenceConflict, ReferenceNotFound
from morag.client import Client, OutcomeUnknown, ServerUnreachable, UnexpectedAnswer
from morag.client.places import NO_ANCESTOR
from morag.errors import ServiceUnavailable, StoreBusy
from morag.spark import CannotRun
from morag.spark import publish as publishing
from morag.spark.catalogs import LakeCatalog
from morag.spark.publish import ChecksFailed, branch
from tests.spark.branches import Branch, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from morag.errors import MoragError
    from morag.model.merging import MergeResult
    from morag.model.references import Reference
    from morag.spark.publish import Check
    from tests.serving import Served

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # Of the sockets to the JVM.

_CATALOG = "spark.sql.catalog.lake"


@pytest.fixture
def main(served: Served, request: pytest.FixtureRequest) -> Iterator[Branch]:
    with Client(served.url) as client:
        main = Branch(client, served.url, request.node.name)
        main.commit("before")
        yield main


@pytest.fixture
def lake(spark: SparkSession, served: Served, main: Branch) -> Iterator[SparkSession]:
    """A session with a Nessie catalog, which nobody uses: that would take Iceberg's jar."""
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


def test_what_passes_its_checks_is_merged_and_the_branch_goes(
    lake: SparkSession, main: Branch
) -> None:
    seen = []

    def nothing_is_wrong(spark: SparkSession) -> DataFrame:
        seen.append((spark.conf.get(f"{_CATALOG}.ref"), keys(main)))
        return spark.range(0)

    etl = f"{main.name}_etl"
    checks: list[Check] = ["SELECT * FROM range(5) WHERE id > 9", nothing_is_wrong]
    with branch(lake, etl, main.name, checks=checks, message="a day's work") as draft:
        assert str(draft) == etl
        assert lake.conf.get(f"{_CATALOG}.ref") == etl
        write(main, draft, "one", "two")
    assert seen == [(etl, ["before"])]  # Checked where it was written, before others see it.
    assert keys(main) == ["before", "one", "two"]
    assert main.messages() == ["before", "a day's work"]
    assert draft.published == main.head
    assert draft.outcome == f"Branch '{etl}' is published: '{main.name}' is at {main.head}"
    assert not exists(main, etl)
    assert lake.conf.get(f"{_CATALOG}.ref") == main.name


def test_a_check_that_finds_rows_leaves_the_branch_to_be_looked_at(
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
    assert f"Branch '{etl}' is left to be looked at" in draft.outcome
    assert keys(main) == ["before"]
    assert keys(main, etl) == ["before", "one"]
    assert draft.published is None
    assert lake.conf.get(f"{_CATALOG}.ref") == main.name

    with (
        pytest.raises(ReferenceAlreadyExists, match="pass replace=True"),
        branch(lake, etl, main.name),
    ):
        pytest.fail("the branch exists")
    with branch(lake, etl, main.name, replace=True, keep=True) as draft:
        write(main, draft, "better")
    assert keys(main) == keys(main, etl) == ["before", "better"]


def test_whatever_is_raised_is_raised_and_says_what_became_of_the_branch(
    lake: SparkSession, main: Branch
) -> None:
    etl = f"{main.name}_etl"
    with pytest.raises(KeyError) as error, branch(lake, etl, main.name) as draft:
        write(main, draft, "one")
        raise KeyError("a bug")
    assert error.value.__notes__ == [draft.outcome]
    assert keys(main) == ["before"]
    assert keys(main, etl) == ["before", "one"]


def test_a_conflict_with_others_publishes_nothing(lake: SparkSession, main: Branch) -> None:
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


def test_nobody_else_may_write_while_it_is_checked(lake: SparkSession, main: Branch) -> None:
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


def test_no_work_is_no_commit(lake: SparkSession, main: Branch) -> None:
    head = main.head
    with branch(lake, f"{main.name}_etl", main.name) as draft:
        pass
    assert main.head == head
    assert draft.outcome.startswith("Nothing was written")
    assert not exists(main, draft.name)


def test_an_empty_branch_is_published_into(lake: SparkSession, main: Branch) -> None:
    """A merge would find nothing in common."""
    main.client.references.assign(main.name, f"@{NO_ANCESTOR}")
    with branch(lake, f"{main.name}_etl", main.name) as draft:
        write(main, draft, "first")
    assert keys(main) == ["first"]
    assert not exists(main, draft.name)


def test_the_namespace_in_use_and_temporary_views_stay(lake: SparkSession, main: Branch) -> None:
    lake.sql("CREATE DATABASE IF NOT EXISTS of_work")
    lake.sql("USE of_work")
    lake.range(3).createOrReplaceTempView("kept")
    with branch(lake, f"{main.name}_etl", main.name):
        assert lake.catalog.currentDatabase() == "of_work"
        assert lake.table("kept").count() == 3
    assert lake.catalog.currentDatabase() == "of_work"
    lake.sql("USE default")
    lake.sql("DROP DATABASE of_work")


def test_a_catalog_must_be_there_and_clear(lake: SparkSession, main: Branch) -> None:
    with (
        pytest.raises(CannotRun, match=r"set spark\.sql\.catalog\.other to"),
        branch(lake, "etl", catalog="other"),
    ):
        pytest.fail("there is no such catalog")
    lake.conf.set("spark.sql.catalog.more.type", "nessie")
    try:
        with (
            pytest.raises(CannotRun, match="2 Nessie catalogs: name one of lake, more"),
            branch(lake, "etl"),
        ):
            pytest.fail("which one?")
    finally:
        lake.conf.unset("spark.sql.catalog.more.type")
    lake.conf.unset(f"{_CATALOG}.catalog-impl")
    with pytest.raises(CannotRun, match="no Nessie catalog: set"), branch(lake, "etl"):
        pytest.fail("there is none")
    assert not exists(main, "etl")


@pytest.mark.parametrize("name", [None, "lake"])
def test_a_rest_catalog_is_told_from_others(
    lake: SparkSession, main: Branch, name: str | None
) -> None:
    lake.conf.unset(f"{_CATALOG}.catalog-impl")
    lake.conf.set(f"{_CATALOG}.type", "rest")
    try:
        with (
            pytest.raises(CannotRun, match=r"'lake' is one of Iceberg's REST .*lake_nessie to"),
            branch(lake, "etl", catalog=name),
        ):
            pytest.fail("it cannot be pointed elsewhere")
    finally:
        lake.conf.unset(f"{_CATALOG}.type")
    assert not exists(main, "etl")


def test_a_session_of_spark_connect_is_refused_before_a_branch_is_made(main: Branch) -> None:
    connect: Any = object()  # Whatever is no session of Spark itself.
    with pytest.raises(CannotRun, match="Spark Connect"), branch(connect, "etl", main.name):
        pytest.fail("it has no catalogs to point elsewhere")
    assert not exists(main, "etl")


def test_a_check_that_tells_nothing_has_not_passed(lake: SparkSession, main: Branch) -> None:
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
    """It would be deleted afterwards."""
    with (
        pytest.raises(CannotRun, match="into itself"),
        branch(lake, main.name, main.name, replace=True),
    ):
        pytest.fail("there is nothing to check before others see it")
    assert keys(main) == ["before"]


def test_settings_of_a_catalog_are_not_shown(lake: SparkSession) -> None:
    lake.conf.set(f"{_CATALOG}.authentication.token", "hush")
    try:
        catalog = LakeCatalog.of(lake, "lake")
    finally:
        lake.conf.unset(f"{_CATALOG}.authentication.token")
    assert catalog.origin().token == "hush"
    assert repr(catalog) == "LakeCatalog('lake')"


def test_what_to_publish_into_must_exist(lake: SparkSession, main: Branch) -> None:
    with pytest.raises(ReferenceNotFound, match="'absent'"), branch(lake, "etl", "absent"):
        pytest.fail("there is nothing to publish into")
    assert not exists(main, "etl")


class Meddled:
    """A catalog in which something happens right after a branch was read, or was merged."""

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

    def merge(self, *what: Any, **how: Any) -> MergeResult:
        merged = self._client.merge(*what, **how)
        self._after_merge()
        return merged

    def used_by(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(publishing, "opened", lambda *_, **__: nullcontext(self))


def test_a_branch_that_is_taken_over_starts_where_the_target_was_read(
    lake: SparkSession, main: Branch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what others did meanwhile would look like work on the branch."""
    etl = f"{main.name}_etl"
    main.client.references.create_branch(etl, None)
    reads = iter([lambda: write(main, main.name, "meanwhile")])
    Meddled(main.client, after_get=lambda: next(reads, int)()).used_by(monkeypatch)
    with branch(lake, etl, main.name, replace=True) as draft:
        assert keys(main, etl) == ["before"]
    assert draft.outcome.startswith("Nothing was written")
    assert main.messages() == ["before", "write meanwhile"]


def test_what_is_published_stays_published_if_its_branch_cannot_be_deleted(
    lake: SparkSession, main: Branch, monkeypatch: pytest.MonkeyPatch
) -> None:
    etl = f"{main.name}_etl"
    gone = Meddled(main.client, after_merge=lambda: main.client.references.delete(etl))
    gone.used_by(monkeypatch)
    with branch(lake, etl, main.name) as draft:
        write(main, draft, "one")
    assert draft.published == main.head
    assert draft.outcome.startswith(f"Branch '{etl}' is published: '{main.name}' is at {main.head}")
    assert f"branch '{etl}' could not be deleted: " in draft.outcome


def test_who_interrupts_a_merge_is_not_told_that_nothing_was_merged(
    lake: SparkSession, main: Branch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ctrl_c() -> None:
        raise KeyboardInterrupt

    Meddled(main.client, after_merge=ctrl_c).used_by(monkeypatch)
    with (
        pytest.raises(KeyboardInterrupt) as error,
        branch(lake, f"{main.name}_etl", main.name) as draft,
    ):
        write(main, draft, "one")
    assert "was merged is not known: look at the log" in draft.outcome
    assert error.value.__notes__ == [draft.outcome]
    assert keys(main) == ["before", "one"]


def _answer(status: int) -> UnexpectedAnswer:
    return UnexpectedAnswer("whatever", http_status=status, method="POST", url="http://lake")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (_answer(200), "is not known"),  # It cannot be decoded.
        (_answer(302), "is not known"),
        (_answer(500), "is not known"),
        (_answer(502), "is not known"),
        (OutcomeUnknown("gone"), "is not known"),
        (ServiceUnavailable("what the server makes of a busy store"), "is not known"),
        (StoreBusy("busy"), "is not known"),
        (_answer(403), "has nothing of it"),
        (ServerUnreachable("never sent"), "has nothing of it"),
        (ReferenceConflict("lost", ()), "has nothing of it"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_only_who_is_refused_is_told_that_nothing_was_merged(
    lake: SparkSession,
    main: Branch,
    monkeypatch: pytest.MonkeyPatch,
    error: MoragError,
    outcome: str,
) -> None:
    def answered() -> None:
        raise error

    Meddled(main.client, after_merge=answered).used_by(monkeypatch)
    with pytest.raises(type(error)), branch(lake, f"{main.name}_etl", main.name) as draft:
        write(main, draft, "one")
    assert outcome in draft.outcome


@pytest.fixture
def used(lake: SparkSession) -> Iterator[SparkSession]:
    """The session uses its catalog, which is one that needs no jar."""
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


def test_a_catalog_that_cannot_show_the_branch_is_pointed_back(
    used: SparkSession, main: Branch
) -> None:
    """Else the next job would write to the branch."""
    used.conf.set(f"{_CATALOG}.driver", "no.such.Driver")
    with (
        pytest.raises(CannotRun, match="'lake' was in use and cannot be loaded again"),
        branch(used, f"{main.name}_etl", main.name),
    ):
        pytest.fail("what is written here would go elsewhere")
    assert used.conf.get(f"{_CATALOG}.ref") == main.name


def test_who_loses_the_catalog_in_use_is_told(used: SparkSession, main: Branch) -> None:
    """Else names without a catalog would mean something else from now on."""
    with (
        pytest.raises(CannotRun, match="'lake' was in use and cannot be loaded again") as error,
        branch(used, f"{main.name}_etl", main.name) as draft,
    ):
        write(main, draft, "one")
        used.conf.unset(_CATALOG)
    assert error.value.__notes__ == [draft.outcome]
    assert draft.published == main.head


def test_who_loses_the_catalog_while_it_merges_is_not_told_that_nothing_was_merged(
    used: SparkSession, main: Branch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both_go_wrong() -> None:
        used.conf.unset(_CATALOG)
        raise OutcomeUnknown("gone")

    Meddled(main.client, after_merge=both_go_wrong).used_by(monkeypatch)
    with pytest.raises(CannotRun), branch(used, f"{main.name}_etl", main.name) as draft:
        write(main, draft, "one")
    assert "was merged is not known" in draft.outcome
