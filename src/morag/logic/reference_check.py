"""Checks refs against the names that are committed on `int/refs`, in both directions.

A backend cannot list its refs. But each creation of a reference stored a record with its name, so
refs whose names are not committed are found by the records of a scan.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from morag.errors import ImportUnderWay, RepositoryCorrupt
from morag.format.ids import ID_BYTES, NO_ANCESTOR
from morag.format.index_entries import value_of
from morag.format.objects import RefObj
from morag.format.records import ObjId
from morag.index.keys import key_text, text_key
from morag.logic.findings import REFERENCE, Finding
from morag.logic.import_marker import check_not_importing
from morag.logic.internal_refs import REFS, REPOSITORY
from morag.logic.pointer_checks import Pointer, Role, creation_detail
from morag.logic.reference_reader import ReferenceReader, ref_of
from morag.logic.repository import read_description
from morag.logic.store_check import short

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from morag.format.records import Ref
    from morag.index.layered import CommitIndex
    from morag.persist.persist import Persist

_AT_ONCE: Final = 100
_NO_ID: Final = ObjId(b"")
_NO_REF: Final = (
    "its name is committed, but it has no ref: its creation was interrupted, or the ref was lost."
    " It is shown at its first commit; create, assign or delete it to repair that"
)
_NO_NAME: Final = "it has a ref, but its name is not committed: it is not listed"
_NO_INTERNAL: Final = "the internal reference is missing"


class ReferenceCheck:
    """Reads all references when it is created, so that a later scan finds what they point to."""

    def __init__(self, persist: Persist) -> None:
        self._persist = persist
        self.findings: list[Finding] = []
        self.heads: set[ObjId] = set()
        self.pointers: list[Pointer] = []
        self.count = 0
        self.names_commit: ObjId | None = None
        """The commit that has the names of all references."""
        self._names: CommitIndex | None = None
        self._read_internal()
        self._read_named()
        self._read_marker()

    def add_unnamed(self, names: Iterable[str]) -> None:
        """Check the refs of these names, which records in the store have, if they are no longer
        committed."""
        rest = iter(names)
        while some := sorted(set(islice(rest, _AT_ONCE))):
            known = self._committed(some)
            for name, ref in self._refs([name for name in some if name not in known]).items():
                if ref.deleted:
                    continue  # Its deletion was interrupted, and it is not shown.
                if self._names is not None:
                    self.findings.append(_about(name, _NO_NAME, ref.pointer))
                self._add(ref, _source(name))

    def _read_internal(self) -> None:
        found = self._refs([REFS, REPOSITORY])
        for name in (REFS, REPOSITORY):
            if name in found:
                self._add(found[name], _source(name))
                if name == REFS:
                    self.names_commit = found[name].pointer
            elif not any(each.needed_by == name for each in self.findings):
                self.findings.append(_about(name, _NO_INTERNAL))

    def _read_named(self) -> None:
        if self.names_commit is None:
            return  # The names that there should be are unknown.
        reader = ReferenceReader(self._persist)
        try:
            self._names = reader.names(self._persist.ref(REFS))
            entries = self._names.items()
            while some := {key_text(key): value_of(op) for key, op in islice(entries, _AT_ONCE)}:
                self._check_named(some)
        except RepositoryCorrupt:
            # The damaged object is found by the scan, and all that it hides is unknown.
            self._names = None

    def _read_marker(self) -> None:
        """An import that has not ended is a finding: references are missing."""
        try:
            check_not_importing(read_description(self._persist))
        except ImportUnderWay as unfinished:
            self.findings.append(_about(REPOSITORY, str(unfinished)))
        except RepositoryCorrupt:
            return  # The damaged object is found by the scan.

    def _check_named(self, records: dict[str, ObjId]) -> None:
        self.count += len(records)
        stored = self._refs(list(records))
        damaged = {finding.needed_by for finding in self.findings}
        for name, record in records.items():
            ref = stored.get(name)
            if ref is None and name not in damaged:
                self.findings.append(_about(name, _NO_REF, record))
                ref = self._initial(record)
            if ref is not None and not ref.deleted:
                self._add(ref, record)
                detail = creation_detail(ref.created_micros, ref.extended_info)
                self.pointers.append(Pointer(record, record, Role.CREATION, detail))

    def _initial(self, record: ObjId) -> Ref | None:
        try:
            return ref_of(self._persist.fetch(RefObj, record))
        except RepositoryCorrupt:
            return None

    def _add(self, ref: Ref, source: ObjId) -> None:
        if ref.pointer != NO_ANCESTOR:
            self.heads.add(ref.pointer)
            self.pointers.append(Pointer(ref.pointer, source, Role.HEAD))
        if ref.extended_info is not None:
            self.pointers.append(Pointer(ref.extended_info, source, Role.TAG))

    def _committed(self, names: Sequence[str]) -> set[str]:
        if self._names is None:
            return set()
        try:
            return {key_text(key) for key in self._names.get_all([text_key(n) for n in names])}
        except RepositoryCorrupt:
            self._names = None
            return set()

    def _refs(self, names: Sequence[str]) -> dict[str, Ref]:
        """The refs that can be read. Each other one is a finding."""
        try:
            return self._persist.refs(names)
        except RepositoryCorrupt as damage:
            if len(names) == 1:
                self.findings.append(_about(names[0], short(_NO_ID, damage)))
                return {}
        found: dict[str, Ref] = {}
        for name in names:
            found |= self._refs([name])
        return found


def confirmed_reference(persist: Persist, finding: Finding) -> Finding | None:
    """The finding about a reference, unless a server completed a change of it meanwhile."""
    name = finding.needed_by
    if finding.problem not in (_NO_REF, _NO_NAME):
        return finding
    ref = persist.ref(name)
    try:
        is_committed = ReferenceReader(persist).created(name) is not None
    except RepositoryCorrupt:
        return finding
    wrong = is_committed != (ref is not None and not ref.deleted)
    return finding if wrong else None


def reference_of(persist: Persist, source: ObjId) -> str:
    """The name of the reference that points to something."""
    for name in (REFS, REPOSITORY):
        if source == _source(name):
            return name
    try:
        return persist.fetch(RefObj, source).name
    except RepositoryCorrupt:
        return source.hex()


def _about(name: str, problem: str, id: ObjId = _NO_ID) -> Finding:
    return Finding(id, problem, REFERENCE, needed_by=name)


def _source(name: str) -> ObjId:
    """Stands for the record of a reference that has none, in pointers."""
    return ObjId(name.encode()[:ID_BYTES].ljust(ID_BYTES, b"\0"))
