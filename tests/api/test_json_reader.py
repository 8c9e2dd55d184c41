"""Request bodies have limits, and large bodies are read with the same result as small ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from morag.api import json_reader as reading
from morag.api.body_readers import COMMIT, KEYS, MERGE, REFERENCE, TRANSPLANT
from morag.errors import BadRequest, RequestTooLarge

MOST = 1000
TABLE = {"type": "ICEBERG_TABLE", "snapshotId": 1, "schemaId": 0, "specId": 0, "sortOrderId": 0}


def operation(number: int, **changes: object) -> dict[str, Any]:
    content = {**TABLE, "metadataLocation": f"s3://lake/{number}.json", **changes}
    return {"type": "PUT", "key": {"elements": ["a", f"table {number}"]}, "content": content}


def commit(*operations: object, **fields: object) -> bytes:
    meta = {"message": "m", "properties": {"a": "b"}}
    return msgspec.json.encode({"commitMeta": meta, "operations": operations, **fields})


def test_a_large_body_is_read_like_a_small_one() -> None:
    body = commit(*map(operation, range(900)), unknown=[1, 2])
    assert len(body) > reading._AT_ONCE_BYTES
    assert COMMIT.read(body, MOST) == COMMIT._decoder.decode(body)


@pytest.mark.parametrize("operations", [b"null", b"[]"])
def test_a_large_body_may_lack_its_list(operations: bytes) -> None:
    body = b'{"commitMeta":{"message":"%b"},"operations":%b}' % (b"m" * 100_000, operations)
    assert COMMIT.read(body, MOST) == COMMIT._decoder.decode(body)


def test_the_position_of_a_mistake_in_a_large_body_is_reported() -> None:
    wrong = operation(800, metadataLocation=[])
    body = commit(*map(operation, range(800)), wrong)
    with pytest.raises(BadRequest, match=r"\$\.operations\[800\]\.content\.metadataLocation"):
        COMMIT.read(body, MOST)


def test_the_position_of_an_item_that_is_no_object_is_reported() -> None:
    with pytest.raises(BadRequest, match=r"got `int` - at `\$\.operations\[800\]"):
        COMMIT.read(commit(*map(operation, range(800)), 17), MOST)


def test_the_position_of_an_item_that_lacks_a_field_is_reported() -> None:
    wrong = operation(800)
    del wrong["key"]
    with pytest.raises(BadRequest, match=r"field `key` - at `\$\.operations\[800\]`"):
        COMMIT.read(commit(*map(operation, range(800)), wrong), MOST)


def test_keys_of_large_bodies_are_checked_too() -> None:
    wrong = {"type": "DELETE", "key": {"elements": ["\x01"]}}
    with pytest.raises(BadRequest, match="must not contain characters less than 0x20"):
        COMMIT.read(commit(*map(operation, range(800)), wrong), MOST)


@pytest.mark.parametrize("count", [MOST + 1, 20_000])
def test_more_operations_than_allowed_are_refused(count: int) -> None:
    deletes = [{"type": "DELETE", "key": {"elements": ["a"]}}] * count
    with pytest.raises(RequestTooLarge, match=f"{MOST} (operations|are accepted)"):
        COMMIT.read(commit(*deletes), MOST)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (KEYS, {"requestedKeys": [{"elements": ["a"]}] * 11}),
        (TRANSPLANT, {"fromRefName": "main", "hashesToTransplant": ["aabbccdd"] * 11}),
        (
            MERGE,
            {
                "fromRefName": "main",
                "keyMergeModes": [{"key": {"elements": ["a"]}, "mergeBehavior": "DROP"}] * 11,
            },
        ),
    ],
    ids=["keys", "hashes", "key merge modes"],
)
def test_keys_hashes_and_merge_modes_count_too(kind: Any, body: object) -> None:
    encoded = msgspec.json.encode(body)
    assert kind.read(encoded, 11) is not None
    with pytest.raises(RequestTooLarge, match="11 operations or keys, but at most 10"):
        kind.read(encoded, 10)


def test_one_item_has_a_largest_size() -> None:
    large = operation(1, metadataLocation="x" * reading.LARGEST_ITEM_BYTES)
    with pytest.raises(RequestTooLarge, match=r"operations\[1\]"):
        COMMIT.read(commit(operation(0), large), MOST)


def test_the_values_of_a_list_are_bounded_however_large_its_items(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "MOST_VALUES", 20_000)
    properties = {str(number): "" for number in range(3_000)}
    namespace = {"type": "NAMESPACE", "elements": ["a"], "properties": properties}
    put = {"type": "PUT", "key": {"elements": ["a"]}, "content": namespace}
    assert COMMIT.read(commit(*5 * [put]), MOST) is not None
    with pytest.raises(RequestTooLarge, match="more than 20000 fields and items"):
        COMMIT.read(commit(*10 * [put]), MOST)


def test_everything_beside_the_list_has_a_largest_size() -> None:
    text = "x" * reading.LARGEST_PLAIN_BYTES
    with pytest.raises(RequestTooLarge):
        COMMIT.read(commit(operation(0), commitMeta={"message": text}), MOST)
    with pytest.raises(RequestTooLarge):
        REFERENCE.read(b'{"type":"BRANCH","name":"%b"}' % text.encode(), MOST)


def test_numbers_may_be_texts_in_large_bodies_as_well() -> None:
    body = commit(*(operation(n, snapshotId="17") for n in range(900)))
    assert len(body) > reading._AT_ONCE_BYTES
    found = COMMIT.read(body, MOST)
    assert found is not None and found.operations is not None
    assert {put.content.snapshot_id for put in found.operations} == {17}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "zz",
    [
        b"[" + b"[]," * reading.LENIENT_VALUES + b"[]]",
        b"[" * (reading.LENIENT_DEPTH + 1) + b"]" * (reading.LENIENT_DEPTH + 1),
        b'"' + b"x" * reading.LENIENT_BYTES + b'"',
    ],
    ids=["values", "depth", "bytes"],
)
def test_lenient_reading_is_bounded(zz: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that is too large for it is refused with the problem that strict reading found."""
    body = b'{"type":"FOO","name":"main","zz":%b}' % zz
    assert not reading._is_modest(body)
    monkeypatch.setattr(reading, "LARGEST_PLAIN_BYTES", 1 << 30)
    monkeypatch.setattr(reading, "converted", lambda *_: pytest.fail("the body was read leniently"))
    with pytest.raises(BadRequest, match="FOO"):
        REFERENCE.read(body, MOST)


def test_brackets_in_strings_do_not_count() -> None:
    assert reading._is_modest(b'{"a":"' + b'[{,\\"' * reading.LENIENT_VALUES + b'"}')


def test_an_unterminated_text_is_scanned_once() -> None:
    """Otherwise each escaped quote would be tried as the start of a text, which takes minutes."""
    assert reading._is_modest(b'"' + b'\\"' * 500_000)


def test_a_long_refusal_is_searched_once_for_the_type_of_a_reference() -> None:
    """Otherwise this would block the interpreter for minutes."""
    nested = 200 * "[" + 200 * "]"
    type = 60_000 * "Invalid value '"
    with pytest.raises(BadRequest, match="Only bodies of up to"):
        REFERENCE.read(f'{{"type":"{type}","x":{nested}}}'.encode(), 1)


def test_an_unknown_type_of_reference_is_refused_in_the_words_of_nessie() -> None:
    with pytest.raises(BadRequest, match="Could not resolve type id 'Invalid value 'X'' as a sub"):
        REFERENCE.read(b"""{"type":"Invalid value 'X'","name":"x"}""", 1)
