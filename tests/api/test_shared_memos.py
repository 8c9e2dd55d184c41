"""Requests that share what the API remembers about their head get the same responses as others."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

import morag
from morag import CommitMeta, ContentKey, IcebergTable, Put
from morag.api.app import Api
from morag.api.http import Memo, Request
from tests.wire.api_calls import answered

if TYPE_CHECKING:
    from morag import Repository
    from morag.api.http import Header

REFS: Final = ("main", "-", "main@", "other", "tag", "@" + 64 * "0", "main~1", "a%20b", "@x")
KEYS: Final = ("a", "b", ".", "a..b", "%01")
PATHS: Final = (
    "/api/v2/config",
    "/api/v2/unknown",
    *(f"/api/v2/trees/{ref}" for ref in REFS),
    *(f"/api/v2/trees/{ref}/contents/{key}" for ref, key in product(REFS, KEYS)),
)
QUERIES: Final = ("", "fetch=ALL", "fetch=x")
HEADERS: Final[tuple[tuple[Header, ...], ...]] = (
    (),
    ((b"accept", b"text/html"),),
    ((b"content-type", b"text/html"),),
)


def put(repository: Repository, key: str) -> None:
    table = IcebergTable(
        metadata_location="s3://x", snapshot_id=1, schema_id=1, spec_id=1, sort_order_id=1
    )
    repository.commit("main", [Put(ContentKey.of(key), table)], CommitMeta(message=key))


def test_responses_are_those_of_a_new_memo_also_after_changes() -> None:
    memos: dict[object, Memo] = {}

    def check_all() -> int:
        """Send all requests with the memo of the last time, and with a new one."""
        found = 0
        for head in product(["GET"], PATHS, QUERIES, HEADERS):
            expected = answered(api, Request(*head))
            memo = memos.setdefault(head, Memo())
            assert answered(api, Request(*head, memo=memo)) == expected, head
            found += expected.status == 200
        return found

    with morag.open("memory:") as repository:
        api = Api(repository)
        at_first = check_all()
        put(repository, "a")
        repository.references.create_branch("other", "main")
        repository.references.create_tag("tag", "main")
        after_creating = check_all()
        put(repository, "b")
        repository.references.delete("other", repository.references.get("other").hash)
        after_deleting = check_all()
    assert len({at_first, after_creating, after_deleting}) == 3, "each change makes a difference"
