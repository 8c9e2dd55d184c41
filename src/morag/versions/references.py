"""Branches and tags: create, find, list, assign and delete them, and read the ref-log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from morag.errors import BadRequest
from morag.format.commit_headers import meta_of
from morag.format.ids import NO_ANCESTOR
from morag.format.objects import Tag
from morag.index.keys import key_text, text_key
from morag.logic import history
from morag.logic.consistency import Consistency, check_log, check_reference
from morag.logic.references import RefMoved
from morag.logic.reflog import read_moves
from morag.model.keys import check_unicode
from morag.model.meta import check_headers
from morag.model.names import (
    NO_ANCESTOR_HASH,
    check_hash,
    check_new_reference_name,
    check_reference_name,
    full_name,
    split_full_name,
)
from morag.model.references import (
    HeadStatus,
    Reference,
    ReferenceHistory,
    ReferenceMetadata,
    RefLogEntry,
    TagNote,
)
from morag.model.results import Page
from morag.model.times import instant_text
from morag.versions.encoded_references import EncodedReferences
from morag.versions.listing import Listing, key_token, token_key
from morag.versions.reference_lane import ReferenceRequest, unexpected_hash
from morag.versions.resolve import object_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from morag.format.records import ObjId, Ref
    from morag.logic.consistency import CommitStatus
    from morag.logic.reference_reader import ReferenceReader
    from morag.logic.reflog import RefMove
    from morag.model.names import ReferenceKind
    from morag.persist.persist import Persist
    from morag.versions.encoded_references import EncodedReference
    from morag.versions.encoding import Encoding
    from morag.versions.resolve import At, Resolver
    from morag.versions.tickets import Spawn, Ticket
    from morag.versions.writers import Writers


_ROOT: Final = "refs/"
_MOST_MOVES: Final = 1 << 31  # More than a page can hold, and accepted by every store.


class NamedReferences:
    """The branches and tags of a repository, by their short names."""

    def __init__(
        self,
        persist: Persist,
        references: ReferenceReader,
        resolver: Resolver,
        default_branch: str,
        writers: Callable[[], Writers],
    ) -> None:
        self._default_branch = default_branch
        self._persist = persist
        self._references = references
        self._resolver = resolver
        self._writers = writers
        self._encoded = EncodedReferences()

    def get(self, name: str) -> Reference:
        """The branch or tag of that name."""
        kind, ref = self._resolver.named(name)
        return Reference(kind, name, ref.pointer.hex())

    def list(
        self,
        kind: ReferenceKind | None = None,
        *,
        prefix: str = "",
        start: str | None = None,
        end: str | None = None,
        token: str | None = None,
    ) -> Listing[Reference]:
        """All branches by name, then all tags by name.

        The bounds are names and need a `kind`; both are inclusive.
        """
        if kind not in (None, "BRANCH", "TAG"):
            raise BadRequest(f"Kind of references must be BRANCH or TAG, not {kind!r}")
        for bound in (prefix, start, end):
            if bound is not None:
                check_unicode("Bounds of names", bound)
        if kind is None and (prefix or start is not None or end is not None):
            raise BadRequest("Names need the kind of their references: BRANCH or TAG")
        root = _ROOT if kind is None else full_name(kind, "")
        first = root + start if start is not None else None
        if token:
            position = _position(token)
            first = position if first is None else max(first, position)
        last = root + end if end is not None else None
        return Listing(lambda: _shown(self._references.list(root + prefix, first, last)), _token)

    def encoded_list(
        self, encoding: Encoding[Reference], token: str | None
    ) -> Listing[EncodedReference]:
        """Like `list` of all references, encoded."""
        first = _position(token) if token else None

        def items() -> Iterator[EncodedReference]:
            return self._encoded.of(self._references.list(_ROOT, first), encoding)

        return Listing(items, lambda found: key_token(text_key(found.full_name)))

    def list_with_metadata(
        self,
        kind: ReferenceKind | None = None,
        *,
        prefix: str = "",
        token: str | None = None,
    ) -> Listing[tuple[Reference, ReferenceMetadata | None]]:
        """The same listing with metadata; None for a reference without a commit."""
        listed = self.list(kind, prefix=prefix, token=token)
        return Listing(
            lambda: ((reference, self.metadata(reference)) for reference in listed),
            lambda described: _token(described[0]),
        )

    def create_branch(self, name: str, at: At | None, *, who: str = "") -> Reference:
        """Create a branch at a commit, such as `main` or `main~1`; None means the empty state."""
        return self._run(self.creation("BRANCH", name, at, who=who))

    def create_tag(
        self, name: str, at: At, note: TagNote | None = None, *, who: str = ""
    ) -> Reference:
        """Create a tag, optionally with a message, headers and a signature."""
        return self._run(self.creation("TAG", name, at, note, who=who))

    def note(self, tag: str) -> TagNote | None:
        """The message, headers and signature of a tag."""
        check_reference_name(tag)
        ref = self._references.get(full_name("TAG", tag))
        if ref.extended_info is None:
            return None
        stored = self._persist.fetch(Tag, ref.extended_info)
        return TagNote(stored.message, dict(stored.headers or ()), stored.signature)

    def assign(self, name: str, to: At, expected: str | None = None, *, who: str = "") -> Reference:
        """Point a reference to another commit, if it is at the expected hash."""
        check_unicode("who", who)
        wanted = None if expected is None else check_hash(expected)
        writers = self._writers()
        kind, ref = self._resolver.named(name)
        _check_at(name, ref.pointer.hex(), wanted)
        target = self._resolver.resolve_to_keep(to)
        writers.heads.forget(ref.name)
        try:
            moved = writers.references.move(ref, target, who)
        except RefMoved as elsewhere:
            raise unexpected_hash(name, ref.pointer.hex(), elsewhere.ref.pointer.hex()) from None
        return Reference(kind, name, moved.pointer.hex())

    def delete(self, name: str, expected: str | None = None, *, who: str = "") -> Reference:
        """Delete a reference that is at the expected hash. Its commits stay."""
        check_unicode("who", who)
        if expected is not None:
            check_hash(expected)
        self._writers()
        return self._run(self.deletion(self.get(name), expected, who=who))

    def check_deletable(self, kind: str, name: str) -> None:
        """Refuse to delete the default branch."""
        if kind == "BRANCH" and name == self._default_branch:
            raise BadRequest(f"Default branch '{name}' cannot be deleted.")

    def metadata(self, of: str | Reference) -> ReferenceMetadata | None:
        """Metadata of the reference as it was read; None if it has no commit."""
        reference = of if isinstance(of, Reference) else self.get(of)
        head = history.head_commit(self._persist, object_id(reference.hash))
        if head is None:
            return None
        default = self._default_branch
        if reference.type == "TAG" or reference.name == default:
            return ReferenceMetadata(head=meta_of(head), total_commits=head.seq)
        _, base_ref = self._resolver.named(default)
        base = history.head_commit(self._persist, base_ref.pointer)
        shared = None if base is None else history.common_ancestor(self._persist, base, head)
        below = 0 if shared is None else shared.seq
        return ReferenceMetadata(
            head=meta_of(head),
            total_commits=head.seq,
            ahead=head.seq - below,
            behind=(0 if base is None else base.seq) - below,
            common_ancestor=NO_ANCESTOR_HASH if shared is None else shared.id.hex(),
        )

    def history(self, name: str, scan_commits: int = 0) -> ReferenceHistory:
        """Recent heads, checked against the store, and `scan_commits` more commits below them.

        `Repository.history.check` names the damaged objects of a commit.
        """
        steps = self.history_in_steps(name, scan_commits)
        return next(found for found in steps if found is not None)

    def history_in_steps(
        self, name: str, scan_commits: int = 0
    ) -> Iterator[ReferenceHistory | None]:
        """Like `history`, in steps of milliseconds: yields None after each, the history last."""
        kind, ref = self._resolver.named(name)
        heads = yield from check_reference(self._persist, ref)
        log = Consistency.NOT_CHECKED
        if scan_commits > 0:
            log = yield from check_log(self._persist, heads[0], scan_commits)
        current, *previous = map(_head_status, heads)
        shown = Reference(kind, name, ref.pointer.hex())
        yield ReferenceHistory(shown, current, tuple(previous), log.value)

    def moves(self, limit: int = 100, token: str | None = None) -> Page[RefLogEntry]:
        """The ref-log, newest first, of the references that users see."""
        if limit < 1:
            raise BadRequest("A page must have room for at least one item")
        limit = min(limit, _MOST_MOVES)
        shown: list[RefLogEntry] = []
        while True:
            moves, token = read_moves(self._persist, token, limit - len(shown))
            shown += [entry for move in moves if (entry := _log_entry(move)) is not None]
            if token is None or len(shown) == limit:
                return Page(tuple(shown), token)

    def creation(
        self,
        kind: ReferenceKind,
        name: str,
        at: At | None,
        note: TagNote | None = None,
        *,
        who: str = "",
    ) -> ReferenceRequest:
        """A creation, checked and ready for its lane."""
        check_new_reference_name(name)
        check_unicode("who", who)
        self._writers()
        target: ObjId = NO_ANCESTOR if at is None else self._resolver.resolve_to_keep(at)
        extended = None
        if note is not None:
            _check_note(note)
            # Empty texts are stored as absent. Both have the same id, so otherwise one tag could
            # show the note of another.
            headers = tuple(note.headers.items()) or None
            tag = Tag(note.message or None, headers, note.signature or None)
            self._persist.store([tag])
            extended = tag.id
        return ReferenceRequest.to_create(kind, name, target, extended, who)

    def deletion(
        self, existing: Reference, expected: str | None = None, *, who: str = ""
    ) -> ReferenceRequest:
        """A deletion of a reference as it was read, checked and ready for its lane."""
        wanted = None if expected is None else check_hash(expected)
        self._writers()
        kind, name, at = cast("ReferenceKind", existing.type), existing.name or "", existing.hash
        self.check_deletable(kind, name)
        _check_at(name, at, wanted)
        return ReferenceRequest.to_drop(kind, name, object_id(at), who)

    def start(
        self, request: ReferenceRequest, spawn: Spawn, finished: Callable[[Ticket], None]
    ) -> None:
        """Carry out a creation or a drop without waiting for it; see `Lane.start`."""
        self._writers().reference_lane.start(request, spawn, finished)

    def _run(self, request: ReferenceRequest) -> Reference:
        made: Reference = self._writers().reference_lane.run(request)
        return made


def _shown(refs: Iterator[Ref]) -> Iterator[Reference]:
    for ref in refs:
        split = split_full_name(ref.name)
        if split is not None:
            yield Reference(*split, ref.pointer.hex())


def _position(token: str) -> str:
    """The full name at which the page of this token begins."""
    return key_text(token_key(token))


def _token(reference: Reference) -> str:
    kind = cast("ReferenceKind", reference.type)
    return key_token(text_key(full_name(kind, reference.name or "")))


def _head_status(status: CommitStatus) -> HeadStatus:
    meta = None if status.commit is None else meta_of(status.commit)
    return HeadStatus(status.id.hex(), status.consistency.value, meta)


def _check_note(note: TagNote) -> None:
    if not isinstance(note, TagNote):
        raise BadRequest(f"Tag note must be a TagNote, not {note!r}")
    if note.message is not None:
        check_unicode("Tag note", note.message)
    check_headers("Tag note", note.headers)
    if not isinstance(note.signature, bytes | None):
        raise BadRequest("Tag note: the signature must be bytes")


def _check_at(name: str, found: str, expected: str | None) -> None:
    if expected is not None and expected != found:
        raise unexpected_hash(name, expected, found)


def _log_entry(move: RefMove) -> RefLogEntry | None:
    """None for internal references."""
    split = split_full_name(move.name)
    if split is None:
        return None
    return RefLogEntry(
        Reference(*split, move.after.hex()),
        move.operation.value,
        move.before.hex(),
        move.after.hex(),
        move.who,
        instant_text(move.at_micros * 1000),
        move.commits,
    )
