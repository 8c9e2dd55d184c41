"""Contents in the form that a caller encodes them in, such as JSON.

A value never changes, so its encoded content is kept with it in the object cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.format.content_values import content_of_value
from morag.persist.persist import Form

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.format.objects import Value
    from morag.model.content import Content
    from morag.persist.persist import Persist
    from morag.versions.encoding import Encoding

_OVERHEAD_BYTES: Final = 130  # A `bytes` object, and its place in the cache.


def content_encoder(persist: Persist, encoding: Encoding[Content]) -> Callable[[Value], bytes]:
    """A function that gives the encoded content of a value."""

    def encode(value: Value) -> bytes:
        return encoding.encode([content_of_value(value)])[0]

    form = Form(encoding.name, encode, _memory_bytes)
    return lambda value: persist.form(value, form)


def _memory_bytes(encoded: bytes) -> int:
    return _OVERHEAD_BYTES + len(encoded)
