"""The promises of a catalog to its users, whether it is a repository or a client.

`CatalogContract` holds for a repository in this process and for a client, so that code can take
either. `ClientContract` adds what only a server offers.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from morag import (
    UDF,
    BadRequest,
    CommitMeta,
    Conflict,
    ConflictType,
    ContentKey,
    ContentNotFound,
    Delete,
    DeltaLakeTable,
    IcebergTable,
    IcebergView,
    MergeBehavior,
    MergeKey,
    Namespace,
    Put,
    ReferenceAlreadyExists,
    ReferenceConflict,
    ReferenceNotFound,
    Unchanged,
)
from morag.model.configs import GarbageCollectorConfig, ReferenceCutoffPolicy
from morag.model.entry_columns import EntryFilter, KeySpan, path_of_key
from morag.model.references import Reference
from morag.model.refspecs import RefSpec, Relative, RelativeKind
from morag.model.results import Diff, LogExtent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from morag.catalog import Catalog
    from morag.client import Client
    from morag.model.content import Content

NO_ANCESTOR: Final = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
UNKNOWN_HASH: Final = "deadbeef" * 8
_NUMBERS: Final = count(1)

CONTENTS: Final[dict[str, Content]] = {
    "table": IcebergTable(
        metadata_location='s3://b/ü "x".json',
        snapshot_id=-(1 << 63),
        schema_id=(1 << 31) - 1,
        spec_id=0,
        sort_order_id=-1,
    ),
    "view": IcebergView(metadata_location="s3://b/v", version_id=(1 << 63) - 1, schema_id=3),
    "view with sql": IcebergView(
        metadata_location="s3://b/v", version_id=1, schema_id=3, sql_text="SELECT 1", dialect="d"
    ),
    "delta": DeltaLakeTable(
        metadata_location_history=("m1", "m2"), checkpoint_location_history=("c1",)
    ),
    "delta with checkpoint": DeltaLakeTable(metadata_location_history=("m",), last_checkpoint="cp"),
    "namespace": Namespace.of("namespace"),
    "namespace with properties": Namespace(
        elements=("namespace with properties",), properties={"b": "1", "a": "", "ü": "\n"}
    ),
    "udf": UDF(sql_text="SELECT 1", dialect="spark"),
    "udf with all": UDF(
        sql_text="s", dialect="d", version_id="v", signature_id="s", metadata_location="m"
    ),
}

NASTY_NAMES: Final = (
    *("a.b", ".", "..", ".a", "a.", "*", "a*b", "**", "*.", "a/b", "/", "\\", "%", "%2F", "%41"),
    *("a b", " ", "a+b", "a;b=c", "a?b", "a#b", "a&b=c", "@", "a@b", "~1", "^", "{x}", "[x]", "|"),
    *('"', "'", "<>", "ä", "日本", "😀", "-", "contents", "\u00a0", "`", "$", ",", ":", "="),
)


def table(number: int, id: str | None = None) -> IcebergTable:
    return IcebergTable(
        id=id,
        metadata_location=f"s3://b/{number}.json",
        snapshot_id=number,
        schema_id=1,
        spec_id=2,
        sort_order_id=3,
    )


def key(*elements: str) -> ContentKey:
    return ContentKey.of(*elements)


def add(catalog: Catalog, branch: str, *names: str) -> str:
    """One commit with a new table for each name; returns its hash."""
    operations = [Put(key(name), table(1)) for name in names]
    return catalog.commit(branch, operations, f"add {' '.join(names)}").hash


def change(catalog: Catalog, branch: str, name: str, number: int) -> str:
    id = catalog.contents.get(branch, key(name)).id
    return catalog.commit(branch, [Put(key(name), table(number, id))], f"change {name}").hash


def tables(catalog: Catalog, at: str) -> list[str]:
    return [str(found) for found in catalog.contents.keys(at)]


class CatalogContract:
    """Subclass it and give it a `catalog` fixture, which tests share: each has its own branches."""

    @pytest.fixture
    def branch(self, catalog: Catalog) -> str:
        return catalog.references.create_branch(self._name(), None).name or ""

    def _name(self) -> str:
        return f"b{next(_NUMBERS)}"

    def test_a_new_branch_starts_from_nothing(self, catalog: Catalog) -> None:
        name = self._name()
        created = catalog.references.create_branch(name, None)
        assert created == Reference("BRANCH", name, NO_ANCESTOR)
        assert catalog.references.get(name) == created
        assert catalog.references.metadata(name) is None
        assert list(catalog.contents.keys(name)) == []
        assert list(catalog.history.log(name)) == []

    def test_the_default_branch_is_there(self, catalog: Catalog) -> None:
        assert catalog.default_branch == "main"
        assert catalog.references.get("main").type == "BRANCH"

    @pytest.mark.parametrize("name", ["b/c", "a.b_c-d", "x/y/z"])
    def test_names_with_separators_are_names(self, catalog: Catalog, name: str) -> None:
        name = f"{self._name()}{name}"
        catalog.references.create_branch(name, None)
        head = add(catalog, name, "t")
        assert catalog.references.get(name).hash == head
        assert tables(catalog, name) == tables(catalog, f"{name}@{head}") == ["t"]
        assert list(catalog.history.hashes(name)) == [head]
        assert catalog.references.delete(name, head).name == name

    def test_references_are_made_at_any_commit(self, catalog: Catalog, branch: str) -> None:
        first, second = add(catalog, branch, "a"), add(catalog, branch, "b")
        places: dict[str | RefSpec, str] = {
            branch: second,
            f"{branch}~1": first,
            f"{branch}@{first}": first,
            f"{branch}@{second}~1": first,
            f"{branch}^1": first,
            f"{branch}~2": NO_ANCESTOR,
            f"@{first}": first,
            f"@{second}^1": first,
            RefSpec(branch, second, (Relative(RelativeKind.PREDECESSOR, 1),)): first,
        }
        for at, expected in places.items():
            name = self._name()
            assert catalog.references.create_tag(name, at) == Reference("TAG", name, expected)
            assert catalog.references.get(name).hash == expected
            again = catalog.references.create_branch(f"{name}b", f"{name}@{expected}")
            assert again.hash == expected

    def test_the_error_of_an_impossible_reference_has_the_reason(
        self, catalog: Catalog, branch: str
    ) -> None:
        with pytest.raises(ReferenceAlreadyExists, match=f"'{branch}' already exists"):
            catalog.references.create_tag(branch, "main")
        with pytest.raises(ReferenceNotFound, match="Named reference 'nope' not found"):
            catalog.references.create_branch(self._name(), "nope")
        with pytest.raises(ReferenceNotFound, match="Named reference 'nope' not found"):
            catalog.references.create_branch(self._name(), f"nope@{NO_ANCESTOR}")
        with pytest.raises(ReferenceNotFound, match=f"Commit '{UNKNOWN_HASH}' not found"):
            catalog.references.create_branch(self._name(), f"{branch}@{UNKNOWN_HASH}")
        with pytest.raises(BadRequest, match="must start with a letter"):
            catalog.references.create_branch("1st", None)
        with pytest.raises(BadRequest, match="HEAD"):
            catalog.references.create_branch("HEAD", None)

    def test_assigning_and_deleting_need_the_expected_hash(
        self, catalog: Catalog, branch: str
    ) -> None:
        first, second = add(catalog, branch, "a"), add(catalog, branch, "b")
        moved = catalog.references.assign(branch, f"{branch}~1", second)
        assert moved == Reference("BRANCH", branch, first) == catalog.references.get(branch)
        assert catalog.references.assign(branch, f"@{second}").hash == second
        changes: tuple[Callable[[], Reference], ...] = (
            lambda: catalog.references.assign(branch, f"@{second}", first),
            lambda: catalog.references.delete(branch, first),
        )
        for late in changes:
            with pytest.raises(ReferenceConflict, match="is not at expected hash") as raised:
                late()
            (conflict,) = raised.value.conflicts
            assert (conflict.conflict_type, conflict.key) == (ConflictType.UNEXPECTED_HASH, None)
        assert catalog.references.delete(branch) == Reference("BRANCH", branch, second)
        with pytest.raises(ReferenceNotFound, match=f"Named reference '{branch}' not found"):
            catalog.references.get(branch)
        with pytest.raises(BadRequest, match="cannot be deleted"):
            catalog.references.delete("main")

    def test_references_are_listed_by_kind_and_name(self, catalog: Catalog) -> None:
        name = self._name() + "-listed-"
        for each in ("b", "a", "c"):
            catalog.references.create_tag(name + "t" + each, "main")
            catalog.references.create_branch(name + each, None)
        branches = catalog.references.list("BRANCH", prefix=name)
        assert [ref.name for ref in branches] == [name + each for each in "abc"]
        assert [ref.name for ref in branches] == [name + each for each in "abc"]
        tags = catalog.references.list("TAG", prefix=name)
        assert [ref.name for ref in tags] == [name + "t" + each for each in "abc"]
        every = [ref for ref in catalog.references.list() if (ref.name or "").startswith(name)]
        assert every == [*branches, *tags]

    def test_references_come_in_pages(self, catalog: Catalog) -> None:
        name = self._name() + "-paged-"
        for number in range(5):
            catalog.references.create_branch(f"{name}{number}", None)
        found, token = [], None
        while True:
            page = catalog.references.list("BRANCH", prefix=name, token=token).page(2)
            found.append([(ref.name or "").removeprefix(name) for ref in page.items])
            token = page.token
            if token is None:
                break
        assert found == [["0", "1"], ["2", "3"], ["4"]]

    def test_metadata_has_the_position_of_a_reference(self, catalog: Catalog, branch: str) -> None:
        first, second = add(catalog, branch, "a"), add(catalog, branch, "b")
        found = catalog.references.metadata(branch)
        assert found is not None
        assert (found.total_commits, found.ahead) == (2, 2)
        assert (found.head.hash, found.head.message) == (second, "add b")
        assert found.head.parents == (first,)
        assert found.common_ancestor == NO_ANCESTOR
        tag = self._name()
        catalog.references.create_tag(tag, f"{branch}~1")
        tagged = catalog.references.metadata(tag)
        assert tagged is not None
        assert (tagged.total_commits, tagged.ahead, tagged.behind) == (1, None, None)

    @pytest.mark.parametrize("name", CONTENTS)
    def test_content_comes_back_as_it_was_sent(
        self, catalog: Catalog, branch: str, name: str
    ) -> None:
        sent = CONTENTS[name]
        done = catalog.commit(branch, [Put(key(name), sent)], "one of each")
        stored = replace(sent, id=done.added[key(name)])
        assert catalog.contents.get(branch, key(name)) == stored
        assert catalog.contents.get_all(branch, [key(name)]) == {key(name): stored}
        (entry,) = catalog.contents.entries(branch, with_content=True)
        assert (entry.key, entry.content_id, entry.content) == (key(name), stored.id, stored)
        (bare,) = catalog.contents.entries(branch)
        assert bare == replace(entry, content=None)
        assert list(catalog.contents.diff(f"@{NO_ANCESTOR}", branch)) == [
            Diff(key(name), None, stored)
        ]
        (logged,) = catalog.history.log(branch, with_operations=True)
        assert logged.operations == (Put(key(name), stored),)
        again = catalog.commit(branch, [Put(key(name), stored)], "the same")
        assert again.added == {}

    def test_keys_may_hold_nearly_any_character(self, catalog: Catalog, branch: str) -> None:
        keys = [key(name) for name in NASTY_NAMES]
        keys += [key("ns"), *(key("ns", name) for name in NASTY_NAMES), key("ns", "a.b", "c*d")]
        contents: dict[ContentKey, Content] = {each: table(1) for each in keys}
        contents |= {each: Namespace.of("x") for each in (key("ns"), key("ns", "a.b"))}
        added = catalog.commit(branch, [Put(k, c) for k, c in contents.items()], "nasty").added
        stored = {each: replace(content, id=added[each]) for each, content in contents.items()}
        assert list(catalog.contents.keys(branch)) == sorted(keys)
        assert catalog.contents.get_all(branch, keys) == stored
        for each in keys:
            assert catalog.contents.get(branch, each) == stored[each]
            (entry,) = catalog.contents.entries(branch, keys=[each], with_content=True)
            assert (entry.key, entry.content) == (each, stored[each])
            assert next(iter(catalog.contents.keys(branch, min_key=each))) == each
        for name in NASTY_NAMES:
            with pytest.raises(ContentNotFound) as raised:
                catalog.contents.get(branch, key("missing", name))
            assert raised.value.key == key("missing", name)

    def test_an_invalid_key_is_refused(self, catalog: Catalog, branch: str) -> None:
        for wrong in (
            ContentKey(()),
            key(""),
            key("a", ""),
            key("a\x1db"),
            key("a\x00"),
            key("x" * 501),
        ):
            with pytest.raises(BadRequest):
                catalog.contents.get(branch, wrong)
            with pytest.raises(BadRequest):
                catalog.commit(branch, [Put(wrong, table(1))], "wrong")

    def test_several_contents_come_in_the_requested_order(
        self, catalog: Catalog, branch: str
    ) -> None:
        add(catalog, branch, "a", "b", "c")
        wanted = [key("c"), key("missing"), key("a")]
        assert list(catalog.contents.get_all(branch, wanted)) == [key("c"), key("a")]
        assert catalog.contents.get_all(branch, []) == {}

    def test_missing_keys_and_references_are_named(self, catalog: Catalog, branch: str) -> None:
        with pytest.raises(ContentNotFound, match=r"for key 'a\.b' in") as raised:
            catalog.contents.get(branch, key("a", "b"))
        assert raised.value.key == key("a", "b")
        with pytest.raises(ReferenceNotFound, match="Named reference 'nope' not found"):
            catalog.contents.get("nope", key("a"))
        with pytest.raises(ReferenceNotFound, match="Named reference 'nope' not found"):
            list(catalog.contents.entries("nope"))
        with pytest.raises(ReferenceNotFound, match=f"Commit '{UNKNOWN_HASH}' not found"):
            list(catalog.history.log(f"@{UNKNOWN_HASH}"))

    def test_listings_keep_to_their_bounds(self, catalog: Catalog, branch: str) -> None:
        operations = [Put(key(name), Namespace.of(name)) for name in ("a", "b")]
        leaves = [Put(key(ns, name), table(1)) for ns in ("a", "b") for name in ("x", "y")]
        catalog.commit(branch, [*operations, *leaves], "two namespaces")
        contents = catalog.contents
        assert tables(catalog, branch) == ["a", "a.x", "a.y", "b", "b.x", "b.y"]
        assert [str(k) for k in contents.keys(branch, prefix=key("a"))] == ["a", "a.x", "a.y"]
        bounded = contents.keys(branch, min_key=key("a", "y"), max_key=key("b", "x"))
        assert [str(k) for k in bounded] == ["a.y", "b", "b.x"]
        wanted = contents.entries(branch, keys=[key("b", "y"), key("nope"), key("a", "x")])
        assert [str(entry.key) for entry in wanted] == ["a.x", "b.y"]
        changed = contents.diff(f"@{NO_ANCESTOR}", branch, prefix=key("b"))
        assert [str(diff.key) for diff in changed] == ["b", "b.x", "b.y"]
        with pytest.raises(BadRequest, match="Combining prefixKey"):
            contents.keys(branch, prefix=key("a"), max_key=key("b"))

    def test_listings_come_in_pages(self, catalog: Catalog, branch: str) -> None:
        names = [f"t{number:02}" for number in range(7)]
        add(catalog, branch, *names)
        contents = catalog.contents

        def pages(what: str) -> Iterator[list[str]]:
            token = None
            while True:
                if what == "entries":
                    entries = contents.entries(branch, token=token).page(3)
                    keys, token = [entry.key for entry in entries.items], entries.token
                else:
                    diffs = contents.diff(f"@{NO_ANCESTOR}", branch, token=token).page(3)
                    keys, token = [diff.key for diff in diffs.items], diffs.token
                yield [str(each) for each in keys]
                if token is None:
                    return

        for what in ("entries", "diffs"):
            assert list(pages(what)) == [names[:3], names[3:6], names[6:]]
        whole = contents.keys(branch).page(7)
        assert (len(whole.items), whole.token) == (7, None)
        assert len(contents.keys(branch).page(1 << 40).items) == 7
        with pytest.raises(BadRequest, match="at least one"):
            contents.keys(branch).page(0)
        with pytest.raises(BadRequest, match="Invalid token"):
            list(contents.keys(branch, token="%%%"))

    def test_a_listing_starts_over_each_time(self, catalog: Catalog, branch: str) -> None:
        add(catalog, branch, "a", "b")
        listing = catalog.contents.keys(branch)
        assert list(listing) == list(listing) == [key("a"), key("b")]

    def test_a_diff_shows_both_sides(self, catalog: Catalog, branch: str) -> None:
        before = add(catalog, branch, "changed", "dropped", "kept")
        old = catalog.contents.get_all(branch, [key("changed"), key("dropped")])
        new = replace(old[key("changed")], metadata_location="s3://b/new")
        after = catalog.commit(
            branch,
            [Put(key("changed"), new), Delete(key("dropped")), Put(key("added"), table(1))],
            "some",
        )
        added = table(1, after.added[key("added")])
        assert list(catalog.contents.diff(f"@{before}", branch)) == [
            Diff(key("added"), None, added),
            Diff(key("changed"), old[key("changed")], new),
            Diff(key("dropped"), old[key("dropped")], None),
        ]
        (logged,) = catalog.history.log(branch, with_operations=True).page(1).items
        assert logged.operations == (
            Put(key("added"), added),
            Put(key("changed"), new),
            Delete(key("dropped")),
        )

    def test_a_history_ends_at_its_limit(self, catalog: Catalog, branch: str) -> None:
        hashes = [add(catalog, branch, f"t{number}") for number in range(6)][::-1]
        log = catalog.history
        assert list(log.hashes(branch)) == hashes
        assert list(log.hashes(branch, until=hashes[2])) == hashes[:3]
        assert list(log.hashes(f"{branch}~2")) == hashes[2:]
        assert list(log.hashes(f"@{hashes[4]}")) == hashes[4:]
        page = log.log(branch).page(4)
        assert [entry.meta.hash for entry in page.items] == hashes[:4]
        assert [entry.parent for entry in page.items] == hashes[1:5]
        assert {entry.operations for entry in page.items} == {None}
        rest = log.log(branch, token=page.token).page(4)
        assert [entry.meta.hash for entry in rest.items] == hashes[4:]
        assert rest.token is None

    def test_a_ref_spec_resolves_to_a_hash(self, catalog: Catalog, branch: str) -> None:
        first, second = add(catalog, branch, "a"), add(catalog, branch, "b")
        for at, hash in (
            (branch, second),
            (f"{branch}~1", first),
            (f"{branch}@{first}", first),
            (f"@{second}^1", first),
            (f"@{NO_ANCESTOR}", NO_ANCESTOR),
        ):
            assert catalog.resolve(at).hash == hash
        with pytest.raises(ReferenceNotFound):
            catalog.resolve(f"{branch}-not")

    def test_several_steps_are_taken_in_turn(self, catalog: Catalog, branch: str) -> None:
        hashes = [add(catalog, branch, f"t{number}") for number in range(6)][::-1]
        moment = catalog.history.log(f"@{hashes[1]}").page(1).items[0].meta.commit_time
        assert moment is not None
        steps = {
            "~1~1": 2,
            "~1~2~1": 4,
            "~1^1": 2,
            "^1~1^1": 3,
            f"*{moment}": 1,
            f"*{moment}~1^1": 3,
            f"@{hashes[1]}~1^1~1": 4,
        }
        for step, expected in steps.items():
            assert next(iter(catalog.history.hashes(f"{branch}{step}"))) == hashes[expected], step
        assert list(catalog.contents.keys(f"{branch}~1^1")) == [key(f"t{n}") for n in range(4)]

    def test_commit_metadata_comes_back(self, catalog: Catalog, branch: str) -> None:
        meta = CommitMeta(
            message='several\nlines, "quotes" and ☃',
            authors=("Ann <a@x.org>", "Bob, the second"),
            author_time="2020-02-03T04:05:06.123456789+02:00",
            signed_off_by=("Cat", "Dog"),
            properties={"one": ("1",), "two": ("2", "zwei")},
        )
        done = catalog.commit(branch, [Put(key("t"), table(1))], meta)
        (logged,) = catalog.history.log(branch)
        assert logged.meta.commit_time is not None
        assert logged.meta == replace(
            meta,
            author_time="2020-02-03T02:05:06.123456789Z",
            hash=done.hash,
            committer="",
            commit_time=logged.meta.commit_time,
            parents=(NO_ANCESTOR,),
        )

    @pytest.mark.parametrize(
        "wrong",
        [
            CommitMeta(message="m", committer="me"),
            CommitMeta(message="m", hash=NO_ANCESTOR),
            CommitMeta(message="m", commit_time="2020-02-03T04:05:06Z"),
            CommitMeta(message="m", author_time="yesterday"),
            CommitMeta(message="half \ud800"),
        ],
        ids=["committer", "hash", "time", "author time", "surrogate"],
    )
    def test_metadata_that_only_the_server_sets_is_refused(
        self, catalog: Catalog, branch: str, wrong: CommitMeta
    ) -> None:
        with pytest.raises(BadRequest):
            catalog.commit(branch, [Put(key("t"), table(1))], wrong)
        assert catalog.references.get(branch).hash == NO_ANCESTOR

    def test_a_commit_is_put_on_top_of_others(self, catalog: Catalog, branch: str) -> None:
        seen = add(catalog, branch, "a")
        add(catalog, branch, "b")
        catalog.commit(branch, [Put(key("c"), table(1))], "late", expected=seen)
        assert tables(catalog, branch) == ["a", "b", "c"]

    def test_all_conflicts_are_reported(self, catalog: Catalog, branch: str) -> None:
        seen = add(catalog, branch, "changed", "dropped")
        old = catalog.contents.get_all(branch, [key("changed"), key("dropped")])
        change(catalog, branch, "changed", 2)
        catalog.commit(branch, [Delete(key("dropped")), Put(key("added"), table(1))], "meanwhile")
        head = catalog.references.get(branch).hash
        with pytest.raises(ReferenceConflict, match="There are multiple conflicts") as raised:
            catalog.commit(
                branch,
                [
                    Put(key("changed"), replace(old[key("changed")], snapshot_id=3)),
                    Delete(key("dropped")),
                    Put(key("added"), table(2)),
                ],
                "too late",
                expected=seen,
            )
        reported = {str(each.key): each.conflict_type for each in raised.value.conflicts}
        assert reported == {
            "changed": ConflictType.VALUE_DIFFERS,
            "dropped": ConflictType.KEY_DOES_NOT_EXIST,
            "added": ConflictType.KEY_EXISTS,
        }
        assert catalog.references.get(branch).hash == head
        with pytest.raises(ReferenceConflict):
            catalog.commit(branch, [Unchanged(key("changed"))], "not so", expected=seen)

    def test_a_single_conflict_is_described(self, catalog: Catalog, branch: str) -> None:
        with pytest.raises(ReferenceConflict, match=r"^Namespace 'a' must exist\.$") as raised:
            catalog.commit(branch, [Put(key("a", "b"), table(1))], "homeless")
        assert raised.value.conflicts == (
            Conflict(ConflictType.NAMESPACE_ABSENT, key("a"), "namespace 'a' must exist"),
        )

    def test_invalid_commits_are_refused(self, catalog: Catalog, branch: str) -> None:
        first = add(catalog, branch, "t")
        with pytest.raises(BadRequest, match="has no content ID"):
            catalog.commit(branch, [Put(key("t"), table(2))], "no id")
        with pytest.raises(BadRequest):
            catalog.commit(branch, [], "nothing to do")
        with pytest.raises(ReferenceNotFound, match="Named reference 'nope' not found"):
            catalog.commit("nope", [Put(key("t"), table(2))], "nowhere")
        with pytest.raises(ReferenceNotFound, match="Could not find commit"):
            catalog.commit(
                branch, [Put(key("u"), table(2))], "not on the branch", expected=UNKNOWN_HASH
            )
        assert catalog.references.get(branch).hash == first

    def test_a_rename_keeps_the_content(self, catalog: Catalog, branch: str) -> None:
        add(catalog, branch, "old")
        content = catalog.contents.get(branch, key("old"))
        done = catalog.commit(branch, [Delete(key("old")), Put(key("new"), content)], "rename")
        assert done.added == {}
        assert catalog.contents.get(branch, key("new")) == content
        assert tables(catalog, branch) == ["new"]

    def test_a_merge_applies_the_changes_of_its_source(self, catalog: Catalog, branch: str) -> None:
        base = add(catalog, branch, "base")
        source = self._parted(catalog, branch, "a", "b")
        tip = catalog.references.get(source).hash
        dry = catalog.merge(source, branch, dry_run=True)
        assert (dry.was_applied, dry.was_successful) == (False, True)
        assert dry.resultant_target_hash is None
        assert catalog.references.get(branch).hash == base
        done = catalog.merge(source, branch)
        assert (done.was_applied, done.was_successful) == (True, True)
        assert done.resultant_target_hash == catalog.references.get(branch).hash
        assert (done.common_ancestor, done.target_branch) == (base, branch)
        assert [(str(d.key), d.merge_behavior) for d in done.details] == [
            ("a", MergeBehavior.NORMAL),
            ("b", MergeBehavior.NORMAL),
        ]
        (merged,) = catalog.history.log(branch).page(1).items
        assert merged.meta.parents == (base, tip)
        assert tables(catalog, branch) == ["a", "b", "base"]
        assert not catalog.merge(source, branch).was_applied

    def test_a_merge_starts_from_any_commit(self, catalog: Catalog, branch: str) -> None:
        add(catalog, branch, "base")
        source = self._parted(catalog, branch, "a", "b", "c")
        first = list(catalog.history.hashes(source))[2]
        meta = CommitMeta(message="by hand", authors=("Ann",), properties={"p": ("1",)})
        catalog.merge(f"@{first}", branch, meta=meta)
        assert tables(catalog, branch) == ["a", "base"]
        (merged,) = catalog.history.log(branch).page(1).items
        assert (merged.meta.message, merged.meta.authors) == ("by hand", ("Ann",))
        assert merged.meta.properties == {"p": ("1",)}
        catalog.merge(f"{source}~1", branch)
        assert tables(catalog, branch) == ["a", "b", "base"]
        tag = self._name()
        catalog.references.create_tag(tag, source)
        catalog.merge(tag, branch)
        assert tables(catalog, branch) == ["a", "b", "base", "c"]

    def test_a_merge_conflicts_where_both_changed(self, catalog: Catalog, branch: str) -> None:
        add(catalog, branch, "both", "one")
        source = self._name()
        catalog.references.create_branch(source, branch)
        for where, number in ((branch, 2), (source, 3)):
            change(catalog, where, "both", number)
        with pytest.raises(ReferenceConflict, match="changed in conflict: 'both'") as raised:
            catalog.merge(source, branch)
        (conflict,) = raised.value.conflicts
        assert (conflict.conflict_type, conflict.key) == (ConflictType.VALUE_DIFFERS, key("both"))
        result = catalog.merge(source, branch, conflicts_as_result=True)
        assert (result.was_applied, result.was_successful) == (False, False)
        (detail,) = result.details
        assert detail.conflict is not None
        assert detail.conflict.conflict_type is ConflictType.VALUE_DIFFERS
        ours = catalog.contents.get(branch, key("both"))
        drop = MergeKey(key("both"), MergeBehavior.DROP)
        assert not catalog.merge(source, branch, keys=[drop]).was_applied
        resolved = table(4, ours.id)
        rule = MergeKey(key("both"), MergeBehavior.NORMAL, ours, resolved)
        assert catalog.merge(source, branch, keys=[rule]).was_applied
        assert catalog.contents.get(branch, key("both")) == resolved
        change(catalog, source, "both", 5)
        assert catalog.merge(source, branch, default=MergeBehavior.FORCE).was_applied
        assert catalog.contents.get(branch, key("both")) == table(5, ours.id)

    def test_a_merge_needs_a_common_ancestor(self, catalog: Catalog, branch: str) -> None:
        add(catalog, branch, "a")
        other = catalog.references.create_branch(self._name(), None).name or ""
        add(catalog, other, "b")
        with pytest.raises(ReferenceNotFound, match="No common ancestor"):
            catalog.merge(other, branch)
        with pytest.raises(ReferenceNotFound, match="'nope' not found"):
            catalog.merge("nope", branch)

    def test_a_transplant_repeats_commits(self, catalog: Catalog, branch: str) -> None:
        base = add(catalog, branch, "base")
        source = self._parted(catalog, branch, "a", "b", "c")
        third, second, first, _ = catalog.history.hashes(source)
        add(catalog, branch, "other")
        dry = catalog.transplant([first], branch, dry_run=True)
        assert (dry.was_applied, dry.was_successful) == (False, True)
        done = catalog.transplant([first, second], branch, source=source)
        assert done.was_applied
        assert done.resultant_target_hash == catalog.references.get(branch).hash
        assert [str(detail.key) for detail in done.details] == ["a", "b"]
        messages = [entry.meta.message for entry in catalog.history.log(branch)]
        assert messages == ["add b", "add a", "add other", "add base"]
        meta = CommitMeta(message="other words")
        catalog.transplant([third], branch, meta=meta, expected=base)
        assert catalog.history.log(branch).page(1).items[0].meta.message == "other words"
        assert tables(catalog, branch) == ["a", "b", "base", "c", "other"]

    def test_an_invalid_transplant_is_refused(self, catalog: Catalog, branch: str) -> None:
        add(catalog, branch, "base")
        source = self._parted(catalog, branch, "a", "b", "c")
        third, _, first, _ = catalog.history.hashes(source)
        with pytest.raises(BadRequest, match="not contiguous"):
            catalog.transplant([first, third], branch)
        with pytest.raises(BadRequest, match="No hashes"):
            catalog.transplant([], branch)
        with pytest.raises(ReferenceNotFound, match=f"Commit '{UNKNOWN_HASH}' not found"):
            catalog.transplant([UNKNOWN_HASH], branch)
        add(catalog, branch, "a")
        with pytest.raises(ReferenceConflict, match="changed in conflict: 'a'"):
            catalog.transplant([first], branch)
        result = catalog.transplant([first], branch, conflicts_as_result=True)
        assert not result.was_successful

    def test_references_are_listed_with_metadata(self, catalog: Catalog) -> None:
        name = self._name()
        for each in ("one", "two"):
            catalog.references.create_branch(f"{name}-{each}", None)
        add(catalog, f"{name}-one", "t")
        listed = list(catalog.references.list_with_metadata("BRANCH", prefix=name))
        assert listed == [
            (catalog.references.get(each), catalog.references.metadata(each))
            for each in (f"{name}-one", f"{name}-two")
        ]
        assert [found is None for _, found in listed] == [False, True]

    def test_the_repository_is_configured_as_a_whole(self, catalog: Catalog) -> None:
        full = GarbageCollectorConfig(
            default_cutoff_policy="P30D",
            per_ref_cutoff_policies=(ReferenceCutoffPolicy("main", "P10D"),),
            new_files_grace_period="PT3H",
            expected_file_count_per_content=123,
        )
        short = GarbageCollectorConfig(default_cutoff_policy="NONE")
        catalog.set_repository_config(full)
        assert catalog.repository_config() == full
        assert catalog.set_repository_config(short) == full
        assert catalog.repository_config() == short
        with pytest.raises(BadRequest):
            catalog.set_repository_config(
                GarbageCollectorConfig(default_cutoff_policy="now and then")
            )

    def test_columns_hold_the_same_entries(self, catalog: Catalog, branch: str) -> None:
        catalog.commit(branch, [Put(key("ns"), Namespace.of("ns"))], "namespace")
        puts = [Put(key("ns", name), table(1)) for name in ("a", "b", "é", "\uff5e", "😀")]
        catalog.commit(branch, puts, "tables")
        catalog.commit(branch, [Put(key("z"), table(2))], "another")
        entries = list(catalog.contents.entries(branch, with_content=True))
        columns = list(catalog.contents.columns(branch, with_content=True))
        assert [
            row
            for some in columns
            for row in zip(
                some.paths, some.types, some.content_ids, some.contents or (), strict=True
            )
        ] == [(path_of_key(e.key), e.type, e.content_id, e.content) for e in entries]
        assert all(some.contents is None for some in catalog.contents.columns(branch))

    @pytest.mark.parametrize(
        ("span", "selected", "expected"),
        [
            (KeySpan(first=key("ns", "b")), EntryFilter(), "ns.b ns.c z"),
            (KeySpan(before=key("ns", "b")), EntryFilter(), "ns ns.a"),
            (KeySpan(first=key("ns", "b"), before=key("z")), EntryFilter(), "ns.b ns.c"),
            (KeySpan(below="ns\x01"), EntryFilter(), "ns.a ns.b ns.c"),
            (KeySpan(first=key("ns", "b"), below="ns\x01"), EntryFilter(), "ns.b ns.c"),
            (KeySpan(below="ns\x01"), EntryFilter(names=frozenset({"a", "z"})), "ns.a"),
            (KeySpan(below="m"), EntryFilter(), ""),
            (KeySpan(), EntryFilter(types=frozenset({"NAMESPACE"})), "ns"),
            (KeySpan(), EntryFilter(names=frozenset({"z", "b"})), "ns.b z"),
            (KeySpan(), EntryFilter(key=key("ns", "b")), "ns.b"),
            (KeySpan(), EntryFilter(key=key("nope")), ""),
            (KeySpan(), EntryFilter(key=key("z"), types=frozenset({"NAMESPACE"})), ""),
        ],
    )
    def test_columns_of_a_selection(
        self, catalog: Catalog, branch: str, span: KeySpan, selected: EntryFilter, expected: str
    ) -> None:
        catalog.commit(branch, [Put(key("ns"), Namespace.of("ns"))], "namespace")
        keys = [key("ns", "a"), key("ns", "b"), key("ns", "c"), key("z")]
        catalog.commit(branch, [Put(each, table(1)) for each in keys], "tables")
        found = catalog.contents.columns(branch, span=span, selected=selected)
        paths = [path.replace("\x01", ".") for some in found for path in some.paths]
        assert paths == expected.split()

    def test_the_extent_of_a_log(self, catalog: Catalog, branch: str) -> None:
        assert catalog.history.extent(branch) == LogExtent(NO_ANCESTOR, 0)
        first, second = add(catalog, branch, "a"), add(catalog, branch, "b")
        assert catalog.history.extent(branch) == LogExtent(second, 2)
        below = catalog.history.extent(f"{branch}~1")
        assert below.hash == first
        assert below.commits in (1, None)

    def test_many_threads_share_one_catalog(self, catalog: Catalog, branch: str) -> None:
        names = [f"t{number:02}" for number in range(40)]
        with ThreadPoolExecutor(12) as threads:
            hashes = list(threads.map(lambda name: add(catalog, branch, name), names))
            found = list(threads.map(lambda name: catalog.contents.get(branch, key(name)), names))
        assert len(set(hashes)) == 40
        assert set(catalog.history.hashes(branch)) == set(hashes)
        assert tables(catalog, branch) == names
        assert len({content.id for content in found}) == 40

    def test_recent_heads_are_listed_and_checked(self, catalog: Catalog, branch: str) -> None:
        first, second = add(catalog, branch, "a"), add(catalog, branch, "b")
        found = catalog.references.history(branch)
        assert found.reference == Reference("BRANCH", branch, second)
        assert (found.current.hash, found.current.consistency) == (second, "COMMIT_CONSISTENT")
        assert found.current.meta is not None
        assert found.current.meta.message == "add b"
        assert [head.hash for head in found.previous] == [first, NO_ANCESTOR]
        assert found.previous[-1].meta is None
        assert found.log == "NOT_CHECKED"
        assert catalog.references.history(branch, 5).log == "COMMIT_CONSISTENT"

    def _parted(self, catalog: Catalog, branch: str, *names: str) -> str:
        """A branch off `branch`, with one commit for each name."""
        name = self._name()
        catalog.references.create_branch(name, branch)
        for each in names:
            add(catalog, name, each)
        return name


class ClientContract(CatalogContract):
    """Promises that only a client of a server keeps. Needs a `client` fixture."""

    @pytest.fixture
    def catalog(self, client: Client) -> Catalog:
        return client

    def test_a_server_describes_itself(self, client: Client) -> None:
        config = client.config()
        assert (config.default_branch, config.max_supported_api_version) == ("main", 2)
        assert config.spec_version == "2.2.0"
        assert config.no_ancestor_hash == NO_ANCESTOR
        assert config.repository_creation_timestamp

    def test_the_default_branch_has_a_short_name(self, client: Client) -> None:
        assert client.references.get("-").name == "main"

    def test_references_are_filtered(self, client: Client) -> None:
        name = self._name()
        client.references.create_branch(f"{name}-one", None)
        add(client, f"{name}-one", "t")
        client.references.create_branch(f"{name}-two", None)
        listed = client.references.list("BRANCH", prefix=name, filter="ref.name.endsWith('two')")
        assert [ref.name for ref in listed] == [f"{name}-two"]
        either = f"ref.name == '{name}-one' || ref.name == '{name}-two'"
        assert list(client.references.list("TAG", filter=either)) == []
        filtered = client.references.list(
            prefix=name, filter="commit.message == 'add t'", fetch_all=True
        )
        assert [ref.name for ref in filtered] == [f"{name}-one"]
        assert list(client.references.list(prefix='no "such" \\ näme')) == []
        with pytest.raises(BadRequest):
            list(client.references.list(filter="ref.name =="))

    def test_entries_diffs_and_history_are_filtered(self, client: Client, branch: str) -> None:
        client.commit(branch, [Put(key("ns"), Namespace.of("ns"))], "namespace")
        add(client, branch, "a", "b")
        contents = client.contents
        tables_only = contents.entries(branch, filter="entry.contentType == 'ICEBERG_TABLE'")
        assert [str(entry.key) for entry in tables_only] == ["a", "b"]
        assert list(contents.keys(branch, filter="entry.name == 'b'")) == [key("b")]
        diffs = contents.diff(f"@{NO_ANCESTOR}", branch, filter="key.key == 'ns'")
        assert [str(diff.key) for diff in diffs] == ["ns"]
        log = client.history.log(branch, filter="commit.message.startsWith('add')")
        assert [entry.meta.message for entry in log] == ["add a b"]
        putting = "operations.exists(op, op.key == 'ns')"
        logged = client.history.log(branch, filter=putting, with_operations=True)
        assert [entry.meta.message for entry in logged] == ["namespace"]
        with pytest.raises(BadRequest):
            list(contents.keys(branch, filter="entry.nope"))

    def test_one_iteration_sees_one_state(self, client: Client, branch: str) -> None:
        names = [f"t{number:04}" for number in range(1100)]  # More than come with one answer.
        add(client, branch, *names)
        entries = iter(client.contents.entries(branch))
        diffs = iter(client.contents.diff(f"@{NO_ANCESTOR}", branch))
        seen = [str(next(entries).key)], [str(next(diffs).key)]
        client.commit(branch, [Delete(key(names[1050])), Put(key("zz"), table(1))], "meanwhile")
        assert seen[0] + [str(entry.key) for entry in entries] == names
        assert seen[1] + [str(diff.key) for diff in diffs] == names
        assert "zz" in tables(client, branch)

    def test_requests_that_the_api_cannot_express_are_refused(
        self, client: Client, branch: str
    ) -> None:
        head = add(client, branch, "t")
        content = client.contents.get(branch, key("t"))
        with pytest.raises(BadRequest, match="expected_content"):
            client.commit(branch, [Put(key("t"), content, content)], "v1 only")
        with pytest.raises(BadRequest, match="accepts a message, and no other"):
            meta = CommitMeta(message="m", authors=("Ann",))
            client.transplant([head], branch, meta=meta)

    def test_a_long_commit_and_a_long_answer_come_through(
        self, client: Client, branch: str
    ) -> None:
        long = {key(f"t{n}"): replace(table(1), metadata_location="ä" * 20_000) for n in range(50)}
        added = client.commit(branch, [Put(k, c) for k, c in long.items()], "long").added
        found = client.contents.get_all(branch, list(long))
        assert found == {k: replace(c, id=added[k]) for k, c in long.items()}
