"""Configurations of the repository, stored as commits on a hidden reference."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from morag.errors import ReferenceAlreadyExists, RepositoryCorrupt
from morag.format.config_strings import config_of_string, string_of_config
from morag.format.ids import NO_ANCESTOR
from morag.format.index_entries import content_id_of, value_of
from morag.format.objects import StringObj
from morag.index.keys import text_key
from morag.index.layered import index_of
from morag.logic.commits import Add, Draft
from morag.logic.history import head_commit
from morag.logic.internal_refs import commit_internal, pointer_of
from morag.model.configs import checked_config, config_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from morag.index.layered import CommitIndex
    from morag.model.configs import RepositoryConfig
    from morag.persist.persist import Persist
    from morag.versions.writers import Writers

CONFIGS: Final = "nessie/configs"
"""Listed on `int/refs` like any other name, but neither a branch nor a tag."""

_PAYLOAD: Final = 0


class Configs:
    """At most one config of each type is stored."""

    def __init__(
        self,
        persist: Persist,
        writers: Callable[[], Writers],
        new_uuid: Callable[[], bytes],
    ) -> None:
        self._persist = persist
        self._writers = writers
        self._new_uuid = new_uuid

    def get(self, types: Iterable[type[RepositoryConfig]]) -> list[RepositoryConfig]:
        """The stored configs of these types, each once, in the requested order.

        Reading creates nothing, unlike in Nessie: without the reference nothing is stored.
        """
        pointer = pointer_of(self._persist, CONFIGS)
        if pointer is None:
            return []
        stored = index_of(self._persist, head_commit(self._persist, pointer))
        found = ((kind, stored.get(_key(kind))) for kind in dict.fromkeys(types))
        return [self._read(kind, op) for kind, op in found if op is not None]

    def update(self, config: RepositoryConfig) -> RepositoryConfig | None:
        """Store the config; returns the previous one of its type, if it can be read.

        A config that is stored already makes no commit.
        """
        config, writers = checked_config(config), self._writers()
        kind, text = type(config), string_of_config(config)
        key, new_id = _key(kind), self._new_uuid()
        before: bytes | None = None

        def draft(stored: CommitIndex) -> Draft | None:
            nonlocal before
            before = stored.get(key)
            if before is None:
                add = Add(key, _PAYLOAD, text.id, new_id)
            elif value_of(before) == text.id:
                return None
            else:
                add = Add(key, _PAYLOAD, text.id, content_id_of(before), value_of(before))
            return Draft(message=f"Update config {config_name(kind)}", adds=[add])

        _need_reference(writers)
        commit_internal(self._persist, writers.retries, CONFIGS, draft, [text])
        with suppress(RepositoryCorrupt):  # Storing it again repairs the damage.
            return None if before is None else self._read(kind, before)
        return None

    def _read(self, kind: type[RepositoryConfig], op: bytes) -> RepositoryConfig:
        return config_of_string(kind, self._persist.fetch(StringObj, value_of(op)))


def _need_reference(writers: Writers) -> None:
    for _ in writers.retries.attempts("create reference"):
        if writers.references.completed(CONFIGS) is not None:
            return
        try:
            writers.references.create(CONFIGS, NO_ANCESTOR)
            return
        except ReferenceAlreadyExists:
            pass  # Perhaps by its name only: `completed` completes the creation.


def _key(kind: type[RepositoryConfig]) -> bytes:
    return text_key(f"configs\0{config_name(kind)}")
