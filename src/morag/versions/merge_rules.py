"""Applies the changes of a source to a target, under the client's merge behavior per key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.errors import BadRequest, ReferenceConflict
from morag.format.commit_headers import headers_of
from morag.format.content_values import value_of_content
from morag.format.ids import NO_CONTENT_ID
from morag.format.index_entries import content_id_of, exists, payload_of, value_of
from morag.index.keys import CONTENTS, content_key, store_key
from morag.index.layered import index_of
from morag.logic.commits import Add, Draft, KeyConflict, Remove, Resolution, build_commit
from morag.model.conflicts import Conflict, ConflictType
from morag.model.content import NAMESPACE_PAYLOAD, check_content
from morag.model.java_hash_order import hash_map_order
from morag.model.merging import MergeBehavior, MergedKey, MergeKey
from morag.versions.entries import (
    check_ids,
    conflict_of,
    content_id_text,
    is_legacy,
    type_payload,
)
from morag.versions.namespaces import check_namespaces

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from morag.format.objects import Commit, Obj
    from morag.format.records import ObjId
    from morag.index.diff import Difference
    from morag.index.layered import CommitIndex
    from morag.logic.completion import BuiltCommit
    from morag.model.keys import ContentKey
    from morag.model.meta import CommitMeta
    from morag.persist.persist import Persist


class MergeRules:
    """The client's merge behaviors, checked once."""

    def __init__(self, keys: Sequence[MergeKey], default: MergeBehavior) -> None:
        self._keys: dict[ContentKey, MergeKey] = {}
        self._default = _behavior(default)
        for rule in keys:
            _behavior(rule.merge_behavior)
            if rule.key in self._keys:
                raise BadRequest(f"Key '{rule.key}' has more than one merge behavior")
            _check_contents(rule)
            self._keys[rule.key] = rule

    @property
    def are_plain(self) -> bool:
        """Whether every key is merged in the normal way. Other behaviors may look at all keys."""
        return not self._keys and self._default is MergeBehavior.NORMAL

    def check(self) -> None:
        """Refuse contradictory rules, once it is clear that there is something to merge."""
        for rule in self._keys.values():
            _check_shape(rule)

    def of(self, key: ContentKey) -> MergeKey:
        return self._keys.get(key) or MergeKey(key, self._default)

    def dropped_keys(self, *sides: CommitIndex) -> set[ContentKey]:
        """Keys with behavior DROP that one of the sides has, changed or not.

        A squash reports all of these, as Nessie does.
        """
        if self._default is MergeBehavior.DROP:
            keys = {_content_key(raw) for side in sides for raw, _ in side.items(CONTENTS)}
        else:
            keys = {k for k in self._keys if any(side.get(store_key(k)) for side in sides)}
        return {key for key in keys if self.of(key).merge_behavior is MergeBehavior.DROP}

    def check_used(self, touched: Iterable[ContentKey], added: Iterable[ContentKey]) -> None:
        """Refuse rules for keys that the merge does not touch."""
        unused = [str(key) for key in self._keys.keys() - set(touched)]
        if unused:
            raise BadRequest(
                "Not all merge key behaviors specified in the request have been used. "
                f"The following keys were not used: [{', '.join(sorted(unused))}]"
            )
        for key in self._keys.keys() - set(added):
            if self._keys[key].resolved_content is not None:
                raise BadRequest(
                    f"The merge behavior for key {key} has an unused resolvedContent attribute."
                )


class SourceChanges:
    """The changes of a source between two of its states, to be applied to a target.

    A rename is one change: a content that leaves one key and appears under another. It is applied
    as a whole, and if either half is dropped, both are.
    """

    def __init__(
        self,
        persist: Persist,
        differences: Iterable[Difference],
        rules: MergeRules,
        details: dict[ContentKey, MergedKey],
        *,
        drop_always: bool,
    ) -> None:
        self._persist = persist
        self._rules = rules
        self._details = details
        self.removes: list[Remove] = []
        self.adds: list[Add] = []
        self.values: list[Obj] = []
        self.touched: set[ContentKey] = set()
        self.added: set[ContentKey] = set()
        self._renames: dict[bytes, bytes] = {}
        self._squashed = drop_always
        changes = [(_content_key(key), key, was, now) for key, was, now in differences]
        renames = _renames(persist, ((key, was, now) for _, key, was, now in changes))
        origins = {new: old for old, new in renames.items()}
        dropped = {
            raw
            for key, raw, _, _ in changes
            if rules.of(key).merge_behavior is MergeBehavior.DROP
            and (drop_always or raw in renames or raw in origins)
        }
        unfollowed = list(dropped)
        while unfollowed:  # A key can lose one content and get another one.
            raw = unfollowed.pop()
            halves = {half for half in (renames.get(raw), origins.get(raw)) if half is not None}
            unfollowed += halves - dropped
            dropped |= halves
        self._renames = {old: new for old, new in renames.items() if old not in dropped}
        for key, raw, was, now in changes:
            self.touched.add(key)
            if raw not in dropped:
                self._take(key, raw, was, now, renamed=raw in origins)
            elif key not in details or details[key].conflict is None:
                # Keep a conflict of an earlier commit, or its change would go unnoticed.
                details[key] = MergedKey(key, MergeBehavior.DROP)

    def build(
        self,
        parent: Commit | None,
        meta: CommitMeta,
        merge_parents: tuple[ObjId, ...] = (),
    ) -> BuiltCommit:
        """The commit on top of `parent`. Conflicts are added to the details; none is raised."""
        check_ids(self.adds)
        self._take_back_renames(index_of(self._persist, parent))
        draft = Draft(
            message=meta.message,
            headers=headers_of(meta),
            removes=self.removes,
            adds=self.adds,
            merge_parents=merge_parents,
        )
        conflicting: set[bytes] = set()

        def resolve(conflict: KeyConflict) -> Resolution:
            conflicting.add(conflict.key)
            return self._resolve(conflict)

        built = build_commit(self._persist, parent, draft, resolve)
        changed = {c.key for c in self.removes} | {c.key for c in self.adds}
        for raw in changed - conflicting:
            key = _content_key(raw)
            rule = self._rules.of(key)
            self._details.setdefault(key, MergedKey(key, rule.merge_behavior))
        return built

    def _take(
        self, key: ContentKey, raw: bytes, was: bytes | None, now: bytes | None, renamed: bool
    ) -> None:
        rule = self._rules.of(key)
        wanted = rule.expected_target_content
        expected = None
        if wanted is not None:
            known = was or now
            legacy = known is not None and is_legacy(known)
            expected = value_of_content(wanted, legacy=legacy).id
        # A content that replaced another under its key is two changes in a squash. A replay makes
        # the one change of the commit, and conflicts with the other content.
        is_new = was is not None and now is not None and content_id_of(was) != content_id_of(now)
        if was is not None and (now is None or (is_new and self._squashed)):
            remove = Remove(raw, payload_of(was), expected or value_of(was), content_id_of(was))
            self.removes.append(remove)
        if now is None:
            return
        value = value_of(now)
        if rule.resolved_content is not None:
            resolved = value_of_content(rule.resolved_content, legacy=is_legacy(now))
            self.values.append(resolved)
            value = resolved.id
        base = None if was is None else value_of(was)
        self.added.add(key)
        self.adds.append(
            Add(
                raw,
                payload_of(now),
                value,
                content_id_of(now),
                expected or base,
                renamed and expected is None and was is None,
            )
        )

    def _take_back_renames(self, target: CommitIndex) -> None:
        """If both sides renamed a content and the source is forced, remove the target's name.

        Otherwise the content would be under two keys. The search by content id walks all keys, but
        the case is rare.
        """
        taken = {change.key for change in self.removes}
        placed = {change.key: change.content_id for change in self.adds}
        for old, new in self._renames.items():
            id = placed[new]
            forced = self._rules.of(_content_key(old)).merge_behavior is MergeBehavior.FORCE
            if not forced or id == NO_CONTENT_ID or target.get(old) is not None:
                continue
            for raw, op in target.items(CONTENTS):
                if (
                    content_id_of(op) == id
                    and raw != new
                    and raw not in taken
                    and raw not in placed
                ):
                    self.removes.append(Remove(raw, payload_of(op), value_of(op), id))
                    key = _content_key(raw)
                    self._details[key] = MergedKey(key, MergeBehavior.FORCE)

    def _resolve(self, conflict: KeyConflict) -> Resolution:
        wanted, existing = conflict.wanted, conflict.existing
        if conflict.type is ConflictType.KEY_EXISTS and wanted is not None and existing is not None:
            types = [type_payload(self._persist, op) for op in (wanted, existing)]
            if types[0] == types[1] and value_of(wanted) == value_of(existing):
                return Resolution.DROP  # Both sides added the same content.
            if types == [NAMESPACE_PAYLOAD, NAMESPACE_PAYLOAD]:
                return Resolution.APPLY  # Both sides created the namespace: take the source's.
        rule = self._rules.of(_content_key(conflict.key))
        found = None
        if rule.merge_behavior is MergeBehavior.NORMAL or rule.expected_target_content is not None:
            found = conflict_of(conflict)
        self._details[rule.key] = MergedKey(rule.key, rule.merge_behavior, found)
        if found is None and rule.merge_behavior is MergeBehavior.DROP:
            return Resolution.DROP
        return Resolution.APPLY


def check_target_namespaces(
    persist: Persist, target: CommitIndex, operations: Iterable[tuple[bytes, bytes]]
) -> None:
    """The namespace rules for operations of a source."""
    if not persist.settings.namespace_validation:
        return
    created, deleted = {}, {}
    operations = list(operations)
    existing = target.get_all([raw for raw, _ in operations])
    for raw, op in operations:
        key = _content_key(raw)
        if not exists(op):
            deleted[key] = type_payload(persist, op)
        elif raw not in existing:
            created[key] = type_payload(persist, op)
    check_namespaces(persist, target, created, deleted)


def merge_conflict(details: Iterable[MergedKey]) -> ReferenceConflict:
    """The error for a merge with conflicts. It also lists keys without a conflict.

    Their order is the one that clients see from Nessie.
    """
    by_key = {detail.key: detail for detail in details}
    clashing = sorted(key for key, detail in by_key.items() if detail.conflict is not None)
    conflicts = [
        by_key[key].conflict or Conflict(ConflictType.KEY_CONFLICT, key, "UNKNOWN")
        for key in hash_map_order(list(by_key))
    ]
    listed = ", ".join(f"'{key}'" for key in clashing)
    return ReferenceConflict(
        f"The following keys have been changed in conflict: {listed}", conflicts
    )


def _behavior(value: object) -> MergeBehavior:
    """Refuse a text in place of a behavior: it would be treated as NORMAL."""
    if not isinstance(value, MergeBehavior):
        known = ", ".join(f"MergeBehavior.{behavior.name}" for behavior in MergeBehavior)
        raise BadRequest(f"{value!r} is not a merge behavior; known: {known}")
    return value


def _check_contents(rule: MergeKey) -> None:
    for content in (rule.expected_target_content, rule.resolved_content):
        if content is not None:
            check_content(content)


def _check_shape(rule: MergeKey) -> None:
    if rule.resolved_content is None:
        return
    if rule.merge_behavior is not MergeBehavior.NORMAL:
        raise BadRequest(
            "MergeKeyBehavior.resolvedContent must be null for "
            f"MergeBehavior.{rule.merge_behavior.value} for {rule.key}"
        )
    if rule.expected_target_content is None:
        raise BadRequest(
            "MergeKeyBehavior.resolvedContent requires setting "
            f"MergeKeyBehavior.expectedTarget as well for key {rule.key}"
        )


def _renames(persist: Persist, differences: Iterable[Difference]) -> dict[bytes, bytes]:
    """Old key to new key of every content that moved."""
    old_keys: dict[str, bytes] = {}
    new_keys: dict[str, bytes] = {}
    for key, was, now in differences:
        if was is not None and now is not None and content_id_of(was) == content_id_of(now):
            continue
        if was is not None:
            old_keys[content_id_text(persist, was)] = key
        if now is not None:
            new_keys[content_id_text(persist, now)] = key
    return {old_keys[id]: new_keys[id] for id in old_keys.keys() & new_keys.keys()}


def _content_key(raw: bytes) -> ContentKey:
    key = content_key(raw)
    assert key is not None, "branches hold content only"
    return key
