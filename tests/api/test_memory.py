"""An answered request leaves nothing behind that waits for Python's garbage collector."""

from __future__ import annotations

import gc
import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest

import morag
from morag.api.app import Api
from morag.api.http import Request
from tests.wire.api_calls import answered

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMIT: Final = "/api/v2/trees/main@{}/history/commit"
JSON: Final = [(b"content-type", b"application/json")]
META: Final = {"message": "m"}
TABLE: Final = {
    "type": "ICEBERG_TABLE",
    "metadataLocation": "x",
    "snapshotId": 1,
    "schemaId": 1,
    "specId": 1,
    "sortOrderId": 1,
}
PUT: Final = {"type": "PUT", "key": {"elements": ["a", "b"]}, "content": TABLE}


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"commitMeta": META, "operations": [5, 3_000_000 * "x"]}),
        (400, {"commitMeta": META, "operations": [5]}),
        (400, {"commitMeta": META, "operations": []}),
        (413, {"commitMeta": {"message": 3_000_000 * "x"}, "operations": [PUT]}),
        (409, {"commitMeta": META, "operations": [PUT]}),
    ],
    ids=["large", "small", "no operations", "too large", "conflict"],
)
def test_the_body_of_a_refused_request_is_released_at_once(status: int, body: object) -> None:
    with morag.open("memory:") as repository:
        api = Api(repository)
        path = COMMIT.format(repository.references.get("main").hash)
        held = json.dumps(body).encode()
        before = sys.getrefcount(held)
        assert answered(api, Request("POST", path, "", JSON, held)).status == status
        assert sys.getrefcount(held) == before


def test_errors_with_a_circular_cause_are_answered() -> None:
    """The frames of each cause are released, and a chain of causes may be circular."""
    with morag.open("memory:") as repository:
        api = Api(repository)
        one, other = ValueError("one"), ValueError("other")
        one.__cause__, other.__cause__ = other, one
        for error in (one, other):
            with suppress(ValueError):
                raise error

        def fails(*_: object) -> None:
            raise one

        repository.references.get = fails  # type: ignore[method-assign, assignment]
        assert answered(api, Request("GET", "/api/v2/trees/main", "", [], b"")).status == 500
