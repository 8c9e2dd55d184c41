"""Finds the commit that a client names, with the checks that a call requires."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from morag.errors import BadRequest, ReferenceNotFound
from morag.model.names import NO_ANCESTOR_HASH, check_reference_name, full_name
from morag.model.references import Reference
from morag.model.refspecs import (
    HASH_AND_STEPS_RULE,
    REF_SPEC_RULE,
    RefSpec,
    Relative,
    check_times,
    last_step,
    parse_steps,
    split_hash_and_steps,
    split_ref_spec,
)
from morag.rest.requests import DetachedBody
from morag.versions.resolve import Resolved

if TYPE_CHECKING:
    from morag.rest.requests import ReferenceBody
    from morag.versions.repository import Repository

DETACHED: Final = "DETACHED"
"""The name that clients send for a commit without a reference, where the API requires a name."""

_NAME_AND_HASH: Final = re.compile("([^@]*@)([0-9a-fA-F]{64})")


class RequestedRef(Struct, frozen=True):
    """A commit as a client names it: by a reference, by a hash and steps from there, or both.

    It is parsed once per request, but for hashes in bodies, whose syntax is also checked when the
    body is read. No name means the default branch, `DETACHED` means no reference.
    Mistakes are stored, because they are reported in this order: a name that cannot exist
    (`is_possible` is false) is reported as not found, and `mistake`, the message about hash and
    steps, after the reference was found.
    """

    name: str | None = None
    hash: str | None = None
    relatives: tuple[Relative, ...] = ()
    mistake: str | None = None
    is_possible: bool = True

    @classmethod
    def of(cls, name: str | None, text: str | None = None) -> RequestedRef:
        """From a checked name and a hash with steps, which may be empty."""
        if not text:
            return cls(name)
        try:
            hash, steps = split_hash_and_steps(text)
        except BadRequest as problem:
            return cls(name, mistake=f"{problem} [{text}]")
        return cls._parsed(name, hash, steps)

    @classmethod
    def checked(cls, name: str | None, text: str | None) -> RequestedRef:
        """Like `of`, but a syntax error of the text raises BadRequest."""
        if not text:
            return cls(name)
        hash, steps = split_hash_and_steps(text)
        check_times(text, HASH_AND_STEPS_RULE)
        return cls._parsed(name, hash, steps)

    @classmethod
    def unchecked(cls, name: str, text: str | None = None) -> RequestedRef:
        """From a name that was not checked: an impossible one is reported as not found."""
        ref = cls.of(name, text)
        try:
            check_reference_name(name)
        except BadRequest:
            return cls(name, ref.hash, ref.relatives, ref.mistake, is_possible=False)
        return ref

    @classmethod
    def of_body(cls, body: ReferenceBody) -> RequestedRef:
        """From a body, which refused wrong syntax in Nessie's words while it was parsed."""
        return cls.of(DETACHED if isinstance(body, DetachedBody) else body.name, body.hash)

    @classmethod
    def _parsed(cls, name: str | None, hash: str, steps: str) -> RequestedRef:
        if len(hash) % 2:
            return cls(name, mistake=f"hash length needs to be a multiple of two, was {len(hash)}")
        try:
            return cls(name, hash or None, parse_steps(steps))
        except BadRequest as problem:
            return cls(name, mistake=str(problem))

    @property
    def names_a_commit(self) -> bool:
        """Whether there is a hash or a step, or a mistake in them."""
        return self.hash is not None or bool(self.relatives) or self.mistake is not None

    @property
    def has_steps(self) -> bool:
        """Whether finding the commit needs a walk along the history, which may take long."""
        return bool(self.relatives)

    def commit(self) -> RefSpec:
        """The hash and the steps, without the reference."""
        if self.mistake is not None:
            raise BadRequest(self.mistake)
        return RefSpec(None, self.hash, self.relatives)


def parse_requested_ref(text: str) -> RequestedRef:
    """Parse a ref spec in a path, such as `main@HASH~1`. Raises BadRequest for a syntax error.

    Only the last of several steps counts, as in Nessie. An empty spec has an empty name.
    """
    found = _NAME_AND_HASH.fullmatch(text)
    if found is None:
        return _parse(text)
    # Every change names another hash: it must not evict the names, which are repeated.
    name, hash = found.groups()
    return RequestedRef(_parse(name + NO_ANCESTOR_HASH).name, hash.lower())


@lru_cache(maxsize=256)  # Clients use the same few branches repeatedly.
def _parse(text: str) -> RequestedRef:
    name, hash, steps = split_ref_spec(text)
    check_times(text, REF_SPEC_RULE)
    if not (name or hash or steps):
        return RequestedRef("")
    return RequestedRef._parsed(name or DETACHED, hash, last_step(steps))


class NamedCommit(Struct, frozen=True):
    """A reference, and a commit that a client expects on it. That is not checked yet."""

    kind: Literal["BRANCH", "TAG", "DETACHED"]
    name: str
    hash: str


class PendingCommit(Struct, frozen=True):
    """A commit that is not loaded yet, and the reference that was named with it, if any."""

    reference: Reference | None
    hash: str


class RefResolution:
    """Resolves requested refs against the repository."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._default_branch = repository.default_branch

    def resolve(self, ref: RequestedRef, label: str = "Hash") -> Resolved:
        """The commit to read. It need not be on the reference that is named with it."""
        return self._repository.resolve(self._spec(ref, label))

    def resolve_early(self, ref: RequestedRef, label: str = "Hash") -> Resolved | PendingCommit:
        """The part of `resolve` that comes before the checks of other parameters.

        The reference must exist and the hash must be well-formed; steps are followed. A hash
        without steps is left to `load`, because a missing commit is reported after other mistakes.
        """
        spec = self._spec(ref, label)
        if spec.hash is None or spec.relatives:
            return self._repository.resolve(spec)
        reference = None if spec.name is None else self._repository.references.get(spec.name)
        return PendingCommit(reference, spec.hash)

    def load(self, found: Resolved | PendingCommit) -> Resolved:
        """The commit that `resolve_early` found or left to this method."""
        if isinstance(found, Resolved):
            return found
        commit = self._repository.resolve(RefSpec(None, found.hash)).commit
        reference = found.reference
        if reference is None:
            return Resolved(None, None, None, commit)
        assert reference.type != "DETACHED", "the reference was found by its name"
        return Resolved(None, reference.type, reference.name, commit)

    def hash(self, ref: RequestedRef, label: str) -> str:
        """The hash of a commit. Without steps, the commit need not exist."""
        commit = ref.commit()
        if commit.hash is not None and not commit.relatives:
            return commit.hash
        return self.resolve(ref, label).hash

    def named_commit(
        self,
        ref: RequestedRef,
        *,
        label: str = "Expected hash",
        role: str = "Reference",
        allowed: tuple[str, ...] = ("BRANCH", "TAG", "DETACHED"),
    ) -> NamedCommit:
        """The commit that a change starts from, which must be named by a hash.

        It need not exist: the change itself looks it up and reports its absence.
        """
        name = self._name(ref)
        kind = DETACHED if name == DETACHED else self._repository.references.get(name).type
        commit = ref.commit()
        if kind not in allowed:
            raise BadRequest(f"{role} must be {_NAMES[allowed]}.")
        return NamedCommit(kind, name, self._unambiguous_hash(commit, label))

    def expected_hash(self, ref: RequestedRef) -> str:
        """Like `named_commit`, for a reference that was found already."""
        return self._unambiguous_hash(ref.commit(), "Expected hash")

    def look_up_names(self, ref: RequestedRef) -> tuple[str, ...]:
        """The full names of the refs that are read to find this one."""
        name = self._default_branch if ref.name is None else ref.name
        return () if name == DETACHED else (full_name("BRANCH", name), full_name("TAG", name))

    def branch_without_lookup(self, ref: RequestedRef) -> NamedCommit | None:
        """The branch and the commit, if the client names both and no lookup is needed.

        The branch may not exist.
        """
        name = self._default_branch if ref.name is None else ref.name
        if ref.hash is None or ref.relatives or ref.mistake or not ref.is_possible:
            return None
        return None if name == DETACHED else NamedCommit("BRANCH", name, ref.hash)

    def _spec(self, ref: RequestedRef, label: str) -> RefSpec:
        name = self._name(ref)
        if name == DETACHED:
            commit = ref.commit()
            _check_unambiguous(commit, label)
            return commit
        if ref.mistake is not None:
            self._repository.references.get(name)  # A missing reference is reported first.
            raise BadRequest(ref.mistake)
        return RefSpec(name, ref.hash, ref.relatives)

    def _unambiguous_hash(self, commit: RefSpec, label: str) -> str:
        _check_unambiguous(commit, label)
        assert commit.hash is not None, "the check requires it"
        return self._repository.resolve(commit).hash if commit.relatives else commit.hash

    def _name(self, ref: RequestedRef) -> str:
        if ref.name is None:
            return self._default_branch
        if not ref.is_possible:
            raise ReferenceNotFound.named(ref.name)
        return ref.name


def reference_of(found: Resolved) -> Reference:
    """The commit as clients see it: a branch or tag with the hash that was read."""
    return Reference(found.kind or DETACHED, found.name, found.hash)


_NAMES: Final = {("BRANCH",): "a branch", ("BRANCH", "TAG"): "a branch or a tag"}


def _check_unambiguous(commit: RefSpec, label: str) -> None:
    """Refuse a spec without a hash: it names another commit as soon as the reference moves."""
    if commit.hash is None:
        missing = "contain a starting commit ID" if commit.relatives else "be provided"
        raise BadRequest(f"{label} must {missing}.")
