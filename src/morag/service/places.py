"""Which place in history a client means, and what a call demands of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from morag.errors import BadRequest, ReferenceNotFound
from morag.model.names import check_reference_name
from morag.model.references import Reference
from morag.model.refspecs import (
    HASH_OR_RELATIVE_RULE,
    REF_SPEC_RULE,
    RefSpec,
    Relative,
    parse_hash_or_relative,
    parse_ref_spec,
)

if TYPE_CHECKING:
    from morag.versions.repository import Repository
    from morag.versions.resolve import Resolved

DETACHED: Final = "DETACHED"
"""How clients name what is no reference, where the API wants the name of one."""

_WHOLE_SECOND: Final = re.compile(r"\*[0-9]{4}-[0-9-]+T[0-9:]+Z")


class Asked(Struct, frozen=True):
    """A place as a client names it: by reference, by hash and steps from there, or both.

    No name stands for the default branch, `DETACHED` for no reference at all.
    """

    name: str | None = None
    hash: str | None = None
    relatives: tuple[Relative, ...] = ()

    @property
    def names_a_commit(self) -> bool:
        """Whether it says more than the reference alone."""
        return self.hash is not None or bool(self.relatives)


class Place(Struct, frozen=True):
    """A reference, and a commit that is meant to be on it; nobody checked that it is."""

    kind: Literal["BRANCH", "TAG", "DETACHED"]
    name: str
    hash: str


def asked_in_path(text: str) -> Asked:
    """Read a ref spec such as `main@HASH~1`. Of several steps only the last one counts, as ever."""
    _check_times(text, REF_SPEC_RULE)
    spec = parse_ref_spec(text)
    return Asked(spec.name or DETACHED, spec.hash, spec.relatives[-1:])


def asked_beside(name: str | None, hash: str | None) -> Asked:
    """Read a hash with optional steps that stands beside the name of its reference."""
    if not hash:
        return Asked(name)
    _check_times(hash, HASH_OR_RELATIVE_RULE)
    spec = parse_hash_or_relative(hash)
    return Asked(name, spec.hash, spec.relatives)


class Places:
    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._default_branch = repository.default_branch

    def read(self, asked: Asked, what: str = "Hash") -> Resolved:
        """The commit to read. That it is on the reference beside it is not checked."""
        name = self._name(asked)
        if name == DETACHED:
            _check_even(asked.hash)
            _check_unambiguous(asked, what)
            return self._repository.resolve(RefSpec(None, asked.hash, asked.relatives))
        if asked.hash is not None and len(asked.hash) % 2:
            self._repository.references.get(name)
            _check_even(asked.hash)
        return self._repository.resolve(RefSpec(name, asked.hash, asked.relatives))

    def write(
        self,
        asked: Asked,
        *,
        what: str = "Expected hash",
        who: str = "Reference",
        allowed: tuple[str, ...] = ("BRANCH", "TAG", "DETACHED"),
    ) -> Place:
        """The commit that a change starts from, which must be named by a hash.

        It need not exist: whoever makes the change finds out, and says what that means.
        """
        name = self._name(asked)
        kind = DETACHED if name == DETACHED else self._repository.references.get(name).type
        _check_even(asked.hash)
        if kind not in allowed:
            raise BadRequest(f"{who} must be {_NAMES[allowed]}.")
        _check_unambiguous(asked, what)
        assert asked.hash is not None, "the check demands it"
        hash = asked.hash
        if asked.relatives:
            hash = self._repository.resolve(RefSpec(None, hash, asked.relatives)).hash
        return Place(kind, name, hash)

    def _name(self, asked: Asked) -> str:
        """Where a call does not check names, one that cannot be is one that is not there."""
        if asked.name is None:
            return self._default_branch
        try:
            check_reference_name(asked.name)
        except BadRequest:
            raise ReferenceNotFound.named(asked.name) from None
        return asked.name


def reference_of(place: Resolved) -> Reference:
    """The place as clients see it: a branch or tag with the hash it was read at."""
    return Reference(place.kind or DETACHED, place.name, place.hash)


_NAMES: Final = {("BRANCH",): "a branch", ("BRANCH", "TAG"): "a branch or a tag"}


def _check_unambiguous(asked: Asked, what: str) -> None:
    """Refuse what would mean another commit as soon as the reference moves."""
    if not asked.names_a_commit:
        raise BadRequest(f"{what} must be provided.")
    if asked.hash is None:
        raise BadRequest(f"{what} must contain a starting commit ID.")


def _check_even(hash: str | None) -> None:
    """Half a byte is no part of a hash. Told after the reference was found, as ever."""
    if hash is not None and len(hash) % 2:
        raise BadRequest(f"hash length needs to be a multiple of two, was {len(hash)}")


def _check_times(text: str, rule: str) -> None:
    """On the wire a time must have a fraction, although the kernel does without."""
    if "*" in text and _WHOLE_SECOND.search(text):
        raise BadRequest(rule)
