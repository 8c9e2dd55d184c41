"""A segment equals a sorted dict, and its bytes do not depend on how it was built."""

from __future__ import annotations

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from morag.errors import RepositoryCorrupt
from morag.format.damage import UNREADABLE
from morag.format.index_entries import ADD, NONE, REMOVE, make_op, with_action
from morag.format.object_codec import decode, encode
from morag.format.objects import Index
from morag.format.records import ObjId
from morag.index.directory import segment_of
from morag.index.keys import KeyRange, key_text, store_key, text_key
from morag.index.segment import EMPTY, Segment
from morag.model.keys import ContentKey
from morag.protobuf import read_varint
from tests.format.damaged_rows import damaged
from tests.index.strategies import ENTRIES, KEYS, OPS, POOL, op_of

Model = dict[bytes, bytes]

# Values of the largest length, whose bytes mislead a search for entries.
ODD_OPS = st.binary(max_size=100).map(lambda value: make_op(ADD, 1, ObjId(value), bytes(16)))


def built(model: Model) -> Segment:
    return Segment.build(sorted(model.items()))


def written(model: Model) -> bytes:
    """The bytes of the format, encoded in the simplest way."""
    out = bytearray(b"\x02")
    assert len(model) < 128
    out.append(len(model))
    previous: bytes | None = None
    for text, op in sorted(
        ((key_text(key), op) for key, op in model.items()),
        key=lambda entry: entry[0].encode("utf-16-be"),
    ):
        key = text.encode() + b"\0\0"
        shared = 0
        if previous is not None:
            while previous[shared] == key[shared]:
                shared += 1
            assert len(previous) - shared < 128
            out.append(len(previous) - shared)
        out += key[shared:] + op
        previous = key
    return bytes(out)


def equals_model(segment: Segment, model: Model) -> bool:
    """Whether keys, entries and bytes equal those of the model."""
    return list(segment.items()) == sorted(model.items()) and segment.serialize() == written(model)


@given(ENTRIES)
def test_a_segment_is_written_in_the_format(model: Model) -> None:
    assert equals_model(built(model), model)


@given(ENTRIES)
def test_a_segment_is_read_as_it_was_written(model: Model) -> None:
    segment = Segment.decode(written(model))
    assert equals_model(segment, model)
    assert segment == built(model)


@given(st.dictionaries(KEYS, OPS | ODD_OPS, min_size=1, max_size=20))
def test_values_may_have_any_length(model: Model) -> None:
    assert equals_model(Segment.decode(written(model)), model)


@given(ENTRIES)
def test_the_older_version_without_a_count_is_read(model: Model) -> None:
    data = written(model)
    assert equals_model(Segment.decode(b"\x01" + data[2:]), model)


@given(ENTRIES, st.lists(KEYS))
def test_looking_up_many_keys_equals_looking_up_each(model: Model, keys: list[bytes]) -> None:
    segment, wanted = built(model), sorted([*keys, *list(model)[::2]])
    assert segment.find_all(wanted) == {key: model[key] for key in wanted if key in model}
    assert all(segment.find(key) == model.get(key) for key in wanted)


def test_long_keys_and_many_entries_take_longer_numbers() -> None:
    keys = [store_key(ContentKey.of("x" * 300, f"{n:05}" + "y" * (n % 7))) for n in range(300)]
    keys += [store_key(ContentKey.of("z" * 250 + str(n), "\uff5e" * 200)) for n in range(10, 99)]
    model = {key: op_of(n) for n, key in enumerate(keys)}
    segment = Segment.decode(built(model).serialize())
    assert list(segment.items()) == sorted(model.items())
    assert segment == built(model)


@given(ENTRIES, ENTRIES)
@example({}, {b"a\0\0": op_of(1)})
@example({b"a\0\0": op_of(1)}, {})
def test_a_merge_equals_that_of_dicts(model: Model, other: Model) -> None:
    segment = built(model)
    event("keys are shared" if model.keys() >= other.keys() else "keys are added")
    assert equals_model(segment.merged(built(other)), {**model, **other})
    assert equals_model(segment, model), "the segment itself must not change"


@given(ENTRIES, KEYS, OPS)
@example({b"a\0\0": op_of(1)}, b"a\0\0", op_of(0))
@example({b"a\0\0": op_of(1)}, b"a\0\0", op_of(2))
def test_one_entry_is_added_or_replaced_as_in_a_dict(model: Model, key: bytes, op: bytes) -> None:
    segment = built(model)
    assert equals_model(segment.with_entry(key, op), {**model, key: op})
    for known in model:
        assert equals_model(segment.with_entry(known, op), {**model, known: op})


@given(ENTRIES, st.lists(KEYS, max_size=5), st.data())
def test_keys_are_left_out_whether_or_not_they_are_there(
    model: Model, absent: list[bytes], data: st.DataObject
) -> None:
    some = data.draw(st.lists(st.sampled_from(sorted(model)))) if model else []
    keys = sorted({*some, *absent})
    after = {key: op for key, op in model.items() if key not in keys}
    assert equals_model(built(model).without(keys), after)


@given(st.dictionaries(st.sampled_from(POOL), OPS, min_size=20, max_size=30), st.data())
def test_few_changes_of_a_read_segment_give_the_same_bytes(
    model: Model, data: st.DataObject
) -> None:
    some = st.sampled_from(sorted(model)) | st.sampled_from(POOL)
    changes = data.draw(st.dictionaries(some, st.none() | OPS, max_size=len(model) // 4))
    after = {key: op for key, op in {**model, **changes}.items() if op is not None}
    dropped = sorted(key for key, op in changes.items() if op is None)
    put = {key: op for key, op in changes.items() if op is not None}
    segment = Segment.decode(written(model)).without(dropped).merged(built(put))
    assert equals_model(segment, after)


@given(ENTRIES)
def test_a_segment_with_the_same_keys_shares_them(model: Model) -> None:
    segment = built(model)
    same_sizes = segment.merged(built({key: with_action(ADD, op) for key, op in model.items()}))
    assert same_sizes.keys is segment.keys
    assert same_sizes.ends is segment.ends


ACTIONS = st.sampled_from([NONE, ADD, REMOVE])
MARKED = st.dictionaries(KEYS, st.builds(op_of, st.integers(0, 1000), ACTIONS), max_size=30)


@given(MARKED, st.data())
def test_actions_of_all_or_some_entries_are_replaced(model: Model, data: st.DataObject) -> None:
    table, marks = bytes.maketrans(b"AR", b"ar"), {b"A": b"a", b"R": b"r", b"N": b"N"}
    some = data.draw(st.sets(st.sampled_from(sorted(model)))) if model else set()
    after = {key: with_action(marks[op[:1]], op) for key, op in model.items()}
    assert equals_model(built(model).with_actions(table), after)
    partly = {key: after[key] if key in some else op for key, op in model.items()}
    assert equals_model(built(model).with_actions(table, some), partly)


@given(MARKED)
def test_keys_are_found_by_their_action(model: Model) -> None:
    for action in (NONE, ADD, REMOVE):
        expected = sorted(key for key, op in model.items() if op[:1] == action)
        assert built(model).keys_with(action) == expected


@given(ENTRIES, KEYS)
def test_a_key_is_found_at_its_position(model: Model, key: bytes) -> None:
    segment = built(model)
    assert segment.find(key) == model.get(key)
    for known in model:
        assert segment.find(known) == model[known]
    assert segment.find_all(sorted({key, *model})) == model


@given(ENTRIES, KEYS, st.none() | KEYS)
def test_a_slice_holds_the_entries_in_its_range(
    model: Model, lower: bytes, upper: bytes | None
) -> None:
    inside = {k: op for k, op in model.items() if lower <= k and (upper is None or k < upper)}
    assert built(model).slice(KeyRange(lower, upper)) == sorted(inside.items())


@given(ENTRIES, st.integers(1, 40))
def test_parts_are_nearly_equal_and_join_to_the_whole(model: Model, parts: int) -> None:
    divided = built(model).divided(parts)
    assert len(divided) == min(parts, len(model))
    assert all(equals_model(part, dict(part.items())) for part in divided)
    if divided:
        assert {len(part) for part in divided[:-1]} <= {max(1, len(model) // parts)}
        assert len(divided[-1]) >= len(divided[0])
    joined = EMPTY
    for part in divided:
        joined = joined.joined(part)
    assert equals_model(joined, model)


SOUND = [
    built({store_key(ContentKey.of("db", name)): op_of(n) for n, name in enumerate("abcdef")}),
    built({store_key(ContentKey.of("\uff5e", name)): op_of(n) for n, name in enumerate("abé")}),
    built({text_key("a"): op_of(1), text_key("b"): make_op(ADD, 1, ObjId(b"odd"), bytes(16))}),
]


@given(
    st.sampled_from([segment.serialize() for segment in SOUND]),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    st.integers(0, 500),
)
def test_damaged_bytes_are_refused_or_read_completely(
    data: bytes, hits: list[tuple[int, int]], size: int
) -> None:
    """An index has no checksum; only the id of its object reveals the damage."""
    damaged = bytearray(data)
    for at, byte in hits:
        damaged[at % len(damaged)] = byte
    check_refused_or_read_completely(bytes(damaged[:size]))


@given(st.binary(max_size=60))
def test_random_bytes_are_refused_or_read_completely(data: bytes) -> None:
    for prefix in (b"", b"\x01", b"\x02\x01", b"\x02\x02a\0\0" + op_of(1)):
        check_refused_or_read_completely(prefix + data)


def check_refused_or_read_completely(data: bytes) -> None:
    """No byte is skipped, and a segment that was read can be used."""
    try:
        segment = Segment.decode(data)
    except UNREADABLE:
        event("refused")
        return
    event("read")
    at = 1 if data[0] == 1 else read_varint(data, 1)[1]
    assert data[at:] == segment.data
    assert data[0] == 1 or read_varint(data, 1)[0] == len(segment)
    for key in segment.keys:
        assert key.endswith(b"\0\0")
        key_text(key)
    assert all(op[1] < 128 for _, op in segment.items())


@given(
    st.sampled_from([segment.serialize() for segment in SOUND]),
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255)), min_size=1, max_size=3),
    st.none() | st.integers(0, 500),
)
def test_damage_to_an_index_object_is_reported_with_its_id(
    data: bytes, hits: list[tuple[int, int]], size: int | None
) -> None:
    row = damaged(encode(Index(data)), hits, size)
    with pytest.raises(RepositoryCorrupt, match=row.id.hex()):
        decode(row)


ONE = b"a\0\0" + op_of(1)
LONG = make_op(ADD, 1, ObjId(b"odd"), bytes(16))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "index"),
        (b"\x03\x00", "version 3"),
        (b"\x02\x01", "missing"),
        (b"\x02\x02" + ONE, "2 entries and has 1"),
        (b"\x02\x00" + ONE, "0 entries and has 1"),
        (b"\x02\x01" + ONE[:-1], "cut short"),
        (b"\x02\x01" + ONE + b"\0", "index"),
        (b"\x02\x01a\0\0X" + op_of(1)[1:], "action 88"),
        (b"\x02\x01a\0\0N\x80" + op_of(1)[2:], "payload"),
        (b"\x02\x02" + ONE + b"\x09b\0\0" + op_of(1), "drops more"),
        (b"\x02\x02" + ONE + b"\x09b\0\0" + LONG, "drops more"),
        (b"\x02\x02" + ONE + b"\x01\0" + op_of(1), "does not end"),
        (b"\x02\x02" + ONE + b"\x01\0" + LONG, "does not end"),
        (b"\x02\x01\xff\0\0" + op_of(1), "utf-8"),
    ],
)
def test_damage_is_explained(data: bytes, reason: str) -> None:
    with pytest.raises(UNREADABLE, match=reason):
        Segment.decode(data)
    index = Index(data)
    with pytest.raises(RepositoryCorrupt, match=f"{index.id.hex()}.*{reason}"):
        segment_of(index)
