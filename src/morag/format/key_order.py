"""Store keys as bytes that sort in Nessie's order.

Nessie compares keys as Java strings, by UTF-16 units, where U+1F600 sorts before U+FF5E. UTF-8
sorts the other way round. Swapping the lead bytes of the two groups gives bytes that sort like
UTF-16 and can be translated back. Other texts stay unchanged.

A key ends with two zero bytes, as in a serialized index. They sort before everything that can
follow, so they do not change the order.
"""

from __future__ import annotations

from typing import Final

# U+E000..U+FFFF start with EE or EF, everything above with F0..F4. No such byte occurs inside a
# character, so a table of single bytes is enough.
_UTF8: Final = bytes.fromhex("eeeff0f1f2f3f4")
_SORTED: Final = bytes.fromhex("f3f4eeeff0f1f2")
_TO_SORTABLE: Final = bytes.maketrans(_UTF8, _SORTED)
_TO_UTF8: Final = bytes.maketrans(_SORTED, _UTF8)


def sortable(utf8: bytes) -> bytes:
    return utf8 if utf8.isascii() else utf8.translate(_TO_SORTABLE)


def to_utf8(key: bytes) -> bytes:
    return key if key.isascii() else key.translate(_TO_UTF8)


END: Final = b"\0\0"


def key_from_utf8(utf8: bytes) -> bytes:
    return sortable(utf8) + END


def key_to_utf8(key: bytes) -> bytes:
    text = key[:-2]
    return text if text.isascii() else text.translate(_TO_UTF8)
