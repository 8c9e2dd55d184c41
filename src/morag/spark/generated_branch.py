"""Builds the commits of one generated branch, one after the other, without a server."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from math import isqrt
from random import Random
from typing import TYPE_CHECKING, Final
from uuid import UUID

from msgspec.structs import replace

from morag.errors import ReferenceConflict
from morag.format.commit_headers import headers_of
from morag.format.content_values import value_of_content
from morag.format.index_entries import content_id_of, payload_of, value_of
from morag.format.objects import Unique
from morag.generate.generated_keys import keys_of, namespaces_of
from morag.generate.random_contents import random_content
from morag.index.keys import store_key
from morag.index.layered import index_of
from morag.logic.commits import Add, CommitConflicts, Draft, build_commit
from morag.model.content import NAMESPACE_PAYLOAD, TYPE_NAMES, Namespace
from morag.model.times import instant_text
from morag.versions.commit_metas import completed
from morag.versions.entries import content_id_text, reference_conflict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from morag.config import Settings
    from morag.format.objects import Commit, Obj
    from morag.generate.generate_options import GenerateOptions
    from morag.logic.completion import BuiltCommit
    from morag.model.keys import ContentKey
    from morag.persist.persist import Persist

COMMIT_NANOS: Final = 1_000_000
"""The time between two commits of a history."""
_LARGEST_INCREMENTAL_BYTES: Final = 512 * 1024
_LARGEST_SEGMENT_BYTES: Final = 16 * 1024


class GenerationClock:
    """The time of the commit that is being built, which follows from its number alone."""

    def __init__(self, start_nanos: int) -> None:
        self._start_nanos = start_nanos
        self.nanos = start_nanos

    def __call__(self) -> int:
        return self.nanos

    def set(self, number: int) -> None:
        self.nanos = self._start_nanos + number * COMMIT_NANOS


class GeneratedBranch:
    """A branch that grows by random commits on top of `head`.

    Each commit follows from the options, the name of the branch, the number of the commit and its
    parent. So a task that is repeated builds the same objects, and storing them twice does no harm.
    """

    def __init__(
        self,
        persist: Persist,
        clock: GenerationClock,
        options: GenerateOptions,
        name: str,
        head: Commit | None,
    ) -> None:
        """`clock` is the clock of `persist`."""
        self._persist = persist
        self._clock = clock
        self._options = options
        self._name = name
        self._keys = generated_keys(options)
        self._namespaces: set[ContentKey] = set()
        self._random = Random()
        self.head = head
        self.puts = 0
        self.tags: list[tuple[str, str]] = []
        """Names, and the hashes of their commits."""

    def commit(self, number: int) -> list[Obj]:
        """The objects of the next commit, in the order in which they must be stored."""
        options = self._options
        self._random.seed(f"{options.seed} {self._name} {number}")
        self._clock.set(number)
        chosen = self._random.choices(self._keys, k=options.puts_per_commit)
        keys = list(dict.fromkeys(chosen))
        spaces = [key for key in namespaces_of(keys) if key not in self._namespaces]
        raw_keys = {key: store_key(key) for key in (*spaces, *keys)}
        found = index_of(self._persist, self.head).get_all(raw_keys.values())
        objects: list[Obj] = []
        adds: list[Add] = []
        for key in spaces:
            existing = found.get(raw_keys[key])
            if existing is None:
                id = self._claimed_id(key, objects)
                value = value_of_content(Namespace(id=str(id), elements=key.elements))
                objects.append(value)
                adds.append(Add(raw_keys[key], NAMESPACE_PAYLOAD, value.id, id.bytes))
            elif payload_of(existing) != NAMESPACE_PAYLOAD:
                raise ReferenceConflict(
                    f"Branch '{self._name}' has a content '{key}', which is not a namespace"
                )
        payload = PAYLOAD_OF_TYPE[options.type]
        for key in keys:
            existing, expected = found.get(raw_keys[key]), None
            if existing is None:
                new = self._claimed_id(key, objects)
                id_bytes, id_text = new.bytes, str(new)
            else:
                id_bytes, expected = content_id_of(existing), value_of(existing)
                id_text = content_id_text(self._persist, existing)
            value = value_of_content(random_content(options.type, self._random, id_text))
            objects.append(value)
            adds.append(Add(raw_keys[key], payload, value.id, id_bytes, expected))
        built = self._built(number, adds, found)
        self._namespaces.update(spaces)
        self.head = built.commit
        self.puts += len(keys)
        tag = options.tag_of(self._random)
        if tag is not None:
            self.tags.append((tag, built.commit.id.hex()))
        return [*objects, *built.indexes, built.commit]

    def _built(
        self, number: int, adds: Sequence[Add], at_parent: Mapping[bytes, bytes]
    ) -> BuiltCommit:
        now = instant_text(self._clock())
        meta = completed(self._options.meta_of(number, self._name), "", now)
        draft = Draft(message=meta.message, headers=headers_of(meta), adds=adds)
        try:
            return build_commit(self._persist, self.head, draft, at_parent=at_parent)
        except CommitConflicts as found:
            raise reference_conflict(found.conflicts) from None

    def _claimed_id(self, key: ContentKey, objects: list[Obj]) -> UUID:
        """The id of new content, and the claim that no other content has it.

        It follows from the branch and the key, not from the random contents: a later run with the
        same seed must not give it to another key.
        """
        text = "\0".join((str(self._options.seed), self._name, *key.elements))
        id = UUID(bytes=sha256(text.encode()).digest()[:16], version=4)
        objects.append(Unique("content-id", id.bytes))
        return id


@lru_cache(maxsize=2)
def generated_keys(options: GenerateOptions) -> list[ContentKey]:
    """The keys of all branches. A process of Spark generates them once for all its tasks."""
    return keys_of(options)


def bulk_settings(settings: Settings, options: GenerateOptions) -> Settings:
    """The settings for commits of this size.

    Stripes are rewritten when the index inside a commit is too large for it. With many puts per
    commit, a larger index is rewritten less often, which saves more than the larger commits cost,
    and most stripes are rewritten together, so that larger ones cost less.
    """
    puts = options.puts_per_commit
    incremental = settings.max_incremental_index_bytes * (isqrt(4 * puts) - 1)
    segment = settings.min_index_segment_bytes * isqrt(puts)
    return replace(
        settings,
        max_incremental_index_bytes=min(incremental, _LARGEST_INCREMENTAL_BYTES),
        min_index_segment_bytes=min(segment, _LARGEST_SEGMENT_BYTES),
    )


PAYLOAD_OF_TYPE: Final = {name: payload for payload, name in TYPE_NAMES.items()}
