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
    last_relative,
    parse_relatives,
    split_hash_or_relative,
    split_ref_spec,
)
from morag.versions.resolve import Resolved

if TYPE_CHECKING:
    from morag.versions.repository import Repository

DETACHED: Final = "DETACHED"
"""How clients name what is no reference, where the API wants the name of one."""

_STEPS: Final = frozenset("~^*")
_WHOLE_SECOND: Final = re.compile(r"\*[0-9]{4}-[0-9-]+T[0-9:]+Z")


class Asked(Struct, frozen=True):
    """A place as a client names it: by reference, by hash and steps from there, or both.

    No name stands for the default branch, `DETACHED` for no reference at all. The hash and its
    steps are read when the reference was found, and no sooner: a client hears of that first.
    """

    name: str | None = None
    hash: str = ""

    @property
    def names_a_commit(self) -> bool:
        """Whether it says more than the reference alone."""
        return bool(self.hash)

    @property
    def has_steps(self) -> bool:
        """Whether history has to be walked to find it, which may be long."""
        return not _STEPS.isdisjoint(self.hash)


class Place(Struct, frozen=True):
    """A reference, and a commit that is meant to be on it; nobody checked that it is."""

    kind: Literal["BRANCH", "TAG", "DETACHED"]
    name: str
    hash: str


class Sought(Struct, frozen=True):
    """A commit to read that was not looked for yet, beside a reference that was found, or none."""

    reference: Reference | None
    hash: str


def check_ref_spec(text: str) -> None:
    """Refuse what breaks the grammar of ref specs."""
    split_ref_spec(text)
    _check_times(text, REF_SPEC_RULE)


def check_hash_or_relative(text: str) -> None:
    """Refuse what breaks the grammar of hashes with steps."""
    split_hash_or_relative(text)
    _check_times(text, HASH_OR_RELATIVE_RULE)


def asked_in_path(text: str) -> Asked:
    """Read a ref spec such as `main@HASH~1`. Of several steps only the last one counts, as ever."""
    name, hash, steps = split_ref_spec(text)
    if not (name or hash or steps):
        raise BadRequest(
            "Either name or commit ID with optional relative commit spec or both must be supplied"
        )
    return Asked(name or DETACHED, hash + last_relative(steps))


class Places:
    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._default_branch = repository.default_branch

    def read(self, asked: Asked, what: str = "Hash") -> Resolved:
        """The commit to read. That it is on the reference beside it is not checked."""
        return self._repository.resolve(self._spec(asked, what))

    def find(self, asked: Asked, what: str = "Hash") -> Resolved | Sought:
        """The same, as far as it is checked before the rest of a request.

        The reference must exist and the hash must be well-formed; steps are followed. A commit
        that is named by its hash alone is left to `load`, because its absence is reported after
        other mistakes.
        """
        spec = self._spec(asked, what)
        if spec.hash is None or spec.relatives:
            return self._repository.resolve(spec)
        reference = None if spec.name is None else self._repository.references.get(spec.name)
        return Sought(reference, spec.hash)

    def load(self, place: Resolved | Sought) -> Resolved:
        """The commit of a place that was found."""
        if isinstance(place, Resolved):
            return place
        found = self._repository.resolve(RefSpec(None, place.hash))
        reference = place.reference
        if reference is None:
            return found
        assert reference.type != "DETACHED", "it was looked up by its name"
        return Resolved(None, reference.type, reference.name, found.commit)

    def hash(self, asked: Asked, what: str) -> str:
        """The hash of a commit. One that is said without steps need not exist."""
        commit = _commit(asked)
        if commit.hash is not None and not commit.relatives:
            return commit.hash
        return self.read(asked, what).hash

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
        commit = _commit(asked)
        if kind not in allowed:
            raise BadRequest(f"{who} must be {_NAMES[allowed]}.")
        _check_unambiguous(commit, what)
        assert commit.hash is not None, "the check demands it"
        hash = self._repository.resolve(commit).hash if commit.relatives else commit.hash
        return Place(kind, name, hash)

    def said(self, asked: Asked) -> Place | None:
        """The branch and the commit that a change starts from, if the client says it all.

        Nobody looked whether there is such a branch.
        """
        try:
            name, commit = self._name(asked), _commit(asked)
        except (BadRequest, ReferenceNotFound):
            return None
        if name == DETACHED or commit.hash is None or commit.relatives:
            return None
        return Place("BRANCH", name, commit.hash)

    def _spec(self, asked: Asked, what: str) -> RefSpec:
        name = self._name(asked)
        if name == DETACHED:
            commit = _commit(asked)
            _check_unambiguous(commit, what)
            return commit
        try:
            commit = _commit(asked)
        except BadRequest:
            self._repository.references.get(name)  # Its absence is reported first.
            raise
        return RefSpec(name, commit.hash, commit.relatives)

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


def _commit(asked: Asked) -> RefSpec:
    """The hash and the steps, or neither. Half a byte is no part of a hash."""
    if not asked.hash:
        return RefSpec()
    try:
        hash, steps = split_hash_or_relative(asked.hash)
    except BadRequest as problem:
        raise BadRequest(f"{problem} [{asked.hash}]") from None
    if len(hash) % 2:
        raise BadRequest(f"hash length needs to be a multiple of two, was {len(hash)}")
    return RefSpec(None, hash or None, parse_relatives(steps))


def _check_unambiguous(commit: RefSpec, what: str) -> None:
    """Refuse what would mean another commit as soon as the reference moves."""
    if commit.hash is None:
        missing = "contain a starting commit ID" if commit.relatives else "be provided"
        raise BadRequest(f"{what} must {missing}.")


def _check_times(text: str, rule: str) -> None:
    """On the wire a time must have a fraction, although the kernel does without."""
    if "*" in text and _WHOLE_SECOND.search(text):
        raise BadRequest(rule)
