"""Commits as every version of Nessie's current storage model builds and hashes them.

Written after `CommitLogicImpl`, `CommitImpl`, `BaseMergeTransplantSquash` and
`TransplantIndividualImpl`. Conflicts are resolved by force, as far as Nessie allows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from morag.format import ids
from morag.format.header_order import java_header_order
from morag.format.ids import NO_ANCESTOR
from morag.format.index_entries import ADD, REMOVE, content_id_of, make_op, payload_of, value_of
from morag.format.key_order import key_to_utf8
from morag.format.objects import Commit
from morag.format.records import ObjId
from morag.index.diff import diff
from morag.index.layered import index_of
from morag.index.spill import grown_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from morag.format.ids import Headers
    from morag.persist.persist import Persist

PAYLOAD: Final = 1


class Removed(Struct, frozen=True):
    key: bytes
    content_id: bytes
    value: ObjId
    payload: int = PAYLOAD


class Added(Struct, frozen=True):
    key: bytes
    content_id: bytes
    value: ObjId
    payload: int = PAYLOAD


class NessieWriter:
    """Stores commits through `persist`, with ids computed in the way of Nessie."""

    def __init__(self, persist: Persist) -> None:
        self._persist = persist

    def commit(
        self,
        parent: Commit,
        message: str,
        removes: Sequence[Removed],
        adds: Sequence[Added],
        *,
        headers: Headers = (),
        merge_parents: tuple[ObjId, ...] = (),
    ) -> Commit:
        """`buildCommitObj`: hashes operations in the given order, and stores them in key order."""
        index = index_of(self._persist, parent)
        ops: dict[bytes, bytes] = {}
        for gone in removes:
            ops[gone.key] = make_op(REMOVE, gone.payload, gone.value, gone.content_id)
        for new in adds:
            ops[new.key] = make_op(ADD, new.payload, new.value, new.content_id)
        inherited = parent.reference_index, parent.stripes
        grown = grown_index(self._persist, index, inherited, sorted(ops.items()))
        hashed_removes = [
            ids.hashed_remove(key_to_utf8(r.key), r.payload, r.content_id) for r in removes
        ]
        hashed_adds = [
            ids.hashed_add(key_to_utf8(a.key), a.payload, a.value, a.content_id) for a in adds
        ]
        commit = Commit(
            id=ids.commit_id(parent.id, message, headers, (*hashed_removes, *hashed_adds)),
            created_micros=self._persist.now_micros(),
            seq=parent.seq + 1,
            tail=(parent.id, *parent.tail)[: self._persist.settings.parents_per_commit],
            merge_parents=merge_parents,
            headers=headers,
            message=message,
            reference_index=grown.reference_index,
            stripes=grown.stripes,
            incremental=grown.incremental,
        )
        self._persist.store([*grown.objects, commit])
        return commit

    def merge(
        self,
        parent: Commit,
        message: str,
        base: Commit,
        source: Commit,
        *,
        dropped: Iterable[bytes] = (),
        since_0_78: bool = True,
        squashed_transplant: bool = False,
    ) -> Commit | None:
        """`diffToCreateCommit`; None if the merge changes nothing.

        Squashed transplants are the same without a merge parent. Nessie dropped them in 0.62.
        """
        target = index_of(self._persist, parent)
        before, after = (index_of(self._persist, commit) for commit in (base, source))
        removes: list[Removed] = []
        adds: list[Added] = []
        for key, was, now in diff(before, after):
            if key in dropped:
                continue
            readded = (
                was is not None and now is not None and content_id_of(was) != content_id_of(now)
            )
            if was is not None and (now is None or (readded and since_0_78)):
                removes.append(Removed(key, content_id_of(was), value_of(was), payload_of(was)))
            if now is not None:
                found = target.get(key)
                if was is None and found is not None and value_of(found) == value_of(now):
                    continue  # Both sides added the same content.
                # Before 0.78, Nessie kept the content id of the replaced content.
                id = content_id_of(was if was is not None and not since_0_78 else now)
                adds.append(Added(key, id, value_of(now), payload_of(now)))
        if not removes and not adds:
            return None
        merged = () if squashed_transplant else (source.id,)
        return self.commit(parent, message, removes, adds, merge_parents=merged)

    def transplant(self, parent: Commit, message: str, source: Commit) -> Commit:
        """`cloneCommit`: copies the operations in key order."""
        operations = list(index_of(self._persist, source).operations())
        removes = [
            Removed(key, content_id_of(op), value_of(op), payload_of(op))
            for key, op in operations
            if op[:1] == REMOVE
        ]
        adds = [
            Added(key, content_id_of(op), value_of(op), payload_of(op))
            for key, op in operations
            if op[:1] == ADD
        ]
        return self.commit(parent, message, removes, adds, headers=source.headers)


def ordered_headers(names: Iterable[str], *, before_jdk_19: bool) -> Headers:
    order = java_header_order(list(names), before_jdk_19=before_jdk_19)
    return tuple((name, (f"value of {name}",)) for name in order)


def rewritten(commit: Commit, cut_point: ObjId | None = None) -> Commit:
    """The commit after `cut-history` has shortened its tail."""
    values = dict(commit.headers)
    headers = tuple((name, values[name]) for name in java_header_order(list(values)))
    end = 1 if cut_point is None else commit.tail.index(cut_point) + 1
    return replace(commit, headers=headers, tail=commit.tail[:end], sealed=False)


def cut_off(commit: Commit) -> Commit:
    """The commit at which `cut-history` truncated the history."""
    message = f"{commit.message} [updated to remove parents on 2026-01-02T03:04:05.678Z]"
    return replace(rewritten(commit), message=message, tail=(NO_ANCESTOR,), merge_parents=())
