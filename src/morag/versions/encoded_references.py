"""References in the form that a caller encodes them in, kept until they move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.format.records import ObjId
from morag.model.names import split_full_name
from morag.model.references import Reference

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from morag.format.records import Ref
    from morag.versions.encoding import Encoding

_MOST_BYTES: Final = 2 * 1024 * 1024
_OVERHEAD_BYTES: Final = 300  # Of a reference that is kept: structs, texts and the entry.


class EncodedReference(Struct, frozen=True, gc=False):
    """A reference, encoded. It follows from the full name and the pointer alone."""

    full_name: str
    pointer: ObjId
    encoded: bytes


class EncodedReferences:
    """Keeps what it encodes, within a limit of memory."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], EncodedReference] = {}
        self._bytes = 0

    def of(self, refs: Iterable[Ref], encoding: Encoding[Reference]) -> Iterator[EncodedReference]:
        """The references among these refs, encoded."""
        name, kept = encoding.name, self._kept
        for ref in refs:
            found = kept.get((name, ref.name))
            if found is None or found.pointer != ref.pointer:
                split = split_full_name(ref.name)
                if split is None:
                    continue
                reference = Reference(*split, ref.pointer.hex())
                found = EncodedReference(ref.name, ref.pointer, encoding.encode([reference])[0])
                self._keep(name, found)
            yield found

    def _keep(self, name: str, found: EncodedReference) -> None:
        if self._bytes >= _MOST_BYTES:
            self._kept.clear()
            self._bytes = 0
        self._bytes += _OVERHEAD_BYTES + len(found.encoded)
        self._kept[name, found.full_name] = found
