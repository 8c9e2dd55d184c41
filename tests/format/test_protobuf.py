"""Numbers and fields on the wire equal their simple definition, whatever their size."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from morag.protobuf import BYTES_TYPE, bytes_field, fields, int_field, read_varint, signed, varint

EDGES = [edge + near for bits in range(0, 64, 7) for edge in (1 << bits,) for near in (-1, 0, 1)]
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from(
    [n for n in EDGES if n >> 63 == 0]
)


def written(value: int) -> bytes:
    """Seven bits per byte, lowest first; all bytes but the last have the highest bit set."""
    value %= 1 << 64
    return bytes([value % 128]) if value < 128 else bytes([value % 128 + 128]) + written(value >> 7)


@given(NUMBERS)
@example(1 << 48)
@example(1 << 49)
@example((1 << 56) - 1)
@example(1 << 56)
@example((1 << 63) - 1)
@example(-1)
@example(-(1 << 63))
def test_a_number_takes_seven_bits_per_byte(value: int) -> None:
    assert varint(value) == written(value)
    number, end = read_varint(varint(value), 0)
    assert (signed(number), end) == (value, len(varint(value)))


@given(st.integers(1, 1 << 20), st.sampled_from([0, 1, 127, 128, 1023, 1024, 16383, 16384, 70_000]))
def test_a_field_of_bytes_begins_with_its_tag_and_size(number: int, size: int) -> None:
    data = bytes(size)
    for _ in range(2):  # The second time, its head may be known.
        field = bytes_field(number, data)
        assert field == written(number << 3 | BYTES_TYPE) + written(size) + data
        assert list(fields(field)) == [(number, data)]


@given(st.integers(1, 1 << 20), NUMBERS)
def test_a_field_of_a_number_begins_with_its_tag(number: int, value: int) -> None:
    assert int_field(number, value) == written(number << 3) + written(value)
