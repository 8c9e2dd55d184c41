"""How a caller encodes what it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Encoding(Struct, Generic[T], frozen=True):
    """A function that encodes each of some items.

    It always gives the same bytes for the same item, so that they can be kept under `name`.
    """

    name: str
    encode: Callable[[Sequence[T]], Sequence[bytes]]
