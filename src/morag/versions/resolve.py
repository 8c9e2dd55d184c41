"""Resolves ref specs, such as `main~2`, to commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from morag.errors import BadRequest, ReferenceNotFound, RepositoryCorrupt
from morag.format.ids import NO_ANCESTOR
from morag.format.objects import Commit
from morag.format.records import ObjId, Ref
from morag.logic import history
from morag.model.names import HASH_RULE, ReferenceKind, check_reference_name, full_name
from morag.model.refspecs import RefSpec, Relative, RelativeKind, parse_ref_spec
from morag.model.times import parse_header_time

if TYPE_CHECKING:
    from morag.logic.reference_reader import ReferenceReader
    from morag.persist.persist import Persist


class Resolved(Struct, frozen=True):
    """A resolved commit. `ref` is None if it was named by its hash alone."""

    ref: Ref | None
    kind: ReferenceKind | None
    name: str | None
    commit: Commit | None

    @property
    def id(self) -> ObjId:
        return NO_ANCESTOR if self.commit is None else self.commit.id

    @property
    def hash(self) -> str:
        return self.id.hex()


At: TypeAlias = str | RefSpec | Resolved
"""How callers may name a commit: as a text, as a parsed ref spec, or already resolved."""


class Resolver:
    def __init__(self, persist: Persist, references: ReferenceReader) -> None:
        self._persist = persist
        self._references = references

    def named(self, name: str) -> tuple[ReferenceKind, Ref]:
        """The branch of that name, or else the tag."""
        check_reference_name(name)
        branch, tag = full_name("BRANCH", name), full_name("TAG", name)
        ref = self._references.find_first([branch, tag])
        if ref is None:
            raise ReferenceNotFound.named(name)
        return ("BRANCH" if ref.name == branch else "TAG"), ref

    def resolve(self, spec: At) -> Resolved:
        """Does not check that a hash is on the named reference; writers check that."""
        if isinstance(spec, Resolved):
            return spec
        spec = _ref_spec(spec)
        kind, ref = (None, None) if spec.name is None else self.named(spec.name)
        if spec.hash is not None:
            commit = history.find_commit(self._persist, object_id(spec.hash))
        elif ref is not None:
            commit = history.head_commit(self._persist, ref.pointer)
        else:
            raise BadRequest(f"'{spec}' must name a reference or contain a starting commit ID.")
        for step in spec.relatives:
            commit = self._follow(commit, step)
        return Resolved(ref, kind, spec.name, commit)

    def resolve_to_keep(self, spec: At) -> ObjId:
        """The id of a commit to which a reference will lead, so that no purge removes it now."""
        found = self.resolve(spec)
        if found.ref is None or found.ref.pointer != found.id:
            history.hold_commit(self._persist, found.commit)
        return found.id

    def locate(self, spec: RefSpec | str) -> ObjId:
        """The id of a commit, even if the commit is unreadable."""
        spec = _ref_spec(spec)
        try:
            return self.resolve(spec).id
        except RepositoryCorrupt:
            if spec.relatives:
                raise
            if spec.hash is not None:
                return object_id(spec.hash)
            assert spec.name is not None, "a spec without a hash has a name"
            return self.named(spec.name)[1].pointer

    def _follow(self, commit: Commit | None, step: Relative) -> Commit | None:
        """Steps past the first commit give the empty state."""
        if commit is None:
            return None
        if step.kind is RelativeKind.TIMESTAMP:
            return history.first_matching(
                self._persist, commit, lambda c: _created_nanos(c) <= step.value
            )
        if step.kind is RelativeKind.PREDECESSOR:
            id = history.predecessor(self._persist, commit, step.value)
        else:
            parents = (commit.parent, *commit.merge_parents)
            id = parents[step.value - 1] if step.value <= len(parents) else NO_ANCESTOR
        return history.head_commit(self._persist, id)


def object_id(hash: str) -> ObjId:
    """A hash as an id. Shortened hashes are valid, but name no commit."""
    if len(hash) != 64:
        raise ReferenceNotFound.commit(hash)
    try:
        return ObjId(bytes.fromhex(hash))
    except ValueError:
        raise BadRequest(HASH_RULE) from None


def _ref_spec(spec: RefSpec | str) -> RefSpec:
    if isinstance(spec, str):
        return parse_ref_spec(spec)
    if not isinstance(spec, RefSpec):
        raise BadRequest(
            f"A commit must be named by a text such as 'main' or 'main~2', not {spec!r}"
        )
    return spec


def _created_nanos(commit: Commit) -> int:
    for name, values in commit.headers:
        if name == "date" and values:
            nanos = parse_header_time(values[0])
            if nanos is not None:
                return nanos
    return commit.created_micros * 1000
