"""Contents in the form that a caller encodes them in, such as JSON.

A value never changes, so its encoded content is kept with it in the object cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.format.content_values import content_of_value
from morag.persist.persist import Form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.format.objects import Value
    from morag.format.records import ObjId
    from morag.model.content import Content
    from morag.persist.persist import Persist
    from morag.versions.encoding import Encoding

_OVERHEAD_BYTES: Final = 130  # A `bytes` object, and its place in the cache.


class EncodedContents:
    """Gives the encoded contents of values."""

    __slots__ = ("_form", "_persist")

    def __init__(self, persist: Persist, encoding: Encoding[Content]) -> None:
        def encode(value: Value) -> bytes:
            return encoding.encode([content_of_value(value)])[0]

        self._persist = persist
        self._form = Form(encoding.name, encode, _memory_bytes)

    def of(self, value: Value) -> bytes:
        return self._persist.form(value, self._form)

    def kept(self, values: Sequence[ObjId]) -> list[bytes] | None:
        """The contents of some values, if all of them were encoded before."""
        return self._persist.kept_forms(self._form, values)


def _memory_bytes(encoded: bytes) -> int:
    return _OVERHEAD_BYTES + len(encoded)
