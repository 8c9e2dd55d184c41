"""Configs of the repository, kept by commits on a reference of their own that nobody is shown."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from morag.errors import ReferenceAlreadyExists, RepositoryCorrupt
from morag.index.keys import text_key
from morag.index.layered import index_of
from morag.index.ops import content_id_of, value_of
from morag.logic.commits import Add, Draft
from morag.logic.history import head_commit
from morag.logic.internal import commit_internal, pointer_of
from morag.model.configs import checked_config, config_name
from morag.persist.ids import NO_ANCESTOR
from morag.persist.objects import StringObj
from morag.wire import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from morag.index.layered import CommitIndex
    from morag.logic.references import References
    from morag.logic.retry import Retries
    from morag.model.configs import RepositoryConfig
    from morag.persist.persist import Persist

CONFIGS: Final = "nessie/configs"
"""Its name is listed on `int/refs` like any other, but is neither a branch nor a tag."""

_PAYLOAD: Final = 0
_SPELLED: Final = re.compile(r"\\u[0-9a-f]{4}|\\.|[\U00010000-\U0010ffff]")


class Configs:
    """At most one config of each type is stored."""

    def __init__(
        self,
        persist: Persist,
        references: References,
        retries: Retries,
        new_uuid: Callable[[], bytes],
    ) -> None:
        self._persist = persist
        self._references = references
        self._retries = retries
        self._new_uuid = new_uuid

    def get(self, types: Iterable[type[RepositoryConfig]]) -> list[RepositoryConfig]:
        """The stored configs of these types, each once, in the order asked for.

        Reading creates nothing, unlike in the original: without the reference nothing is stored.
        """
        pointer = pointer_of(self._persist, CONFIGS)
        if pointer is None:
            return []
        stored = index_of(self._persist, head_commit(self._persist, pointer))
        found = ((kind, stored.get(_key(kind))) for kind in dict.fromkeys(types))
        return [self._read(kind, op) for kind, op in found if op is not None]

    def update(self, config: RepositoryConfig) -> RepositoryConfig | None:
        """Store the config in place of the one of its type, which is returned if it can be read.

        What is stored already makes no commit.
        """
        config = checked_config(config)
        kind, text = type(config), StringObj("application/json", _json(config))
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

        self._need_reference()
        commit_internal(self._persist, self._retries, CONFIGS, draft, [text])
        with suppress(RepositoryCorrupt):  # Storing it anew is how damage is mended.
            return None if before is None else self._read(kind, before)
        return None

    def _need_reference(self) -> None:
        for _ in self._retries.attempts("create reference"):
            if self._references.find(CONFIGS) is not None:
                return
            try:
                self._references.create(CONFIGS, NO_ANCESTOR)
                return
            except ReferenceAlreadyExists:
                pass  # Perhaps by its name only: finding it makes what another has not done yet.

    def _read(self, kind: type[RepositoryConfig], op: bytes) -> RepositoryConfig:
        """Not checked: what the original has taken must stay readable, and replaceable."""
        stored = self._persist.fetch(StringObj, value_of(op))
        try:
            return msgspec.json.decode(stored.text, type=kind)
        except (*UNREADABLE, msgspec.MsgspecError) as error:
            raise RepositoryCorrupt(
                f"The stored config {config_name(kind)} cannot be read, store it anew: {error} "
                f"(object {stored.id.hex()})"
            ) from None


def _json(config: RepositoryConfig) -> bytes:
    """The bytes that the original writes, or the same config would be two different strings."""
    return _SPELLED.sub(_spelled, msgspec.json.encode(config).decode()).encode()


def _spelled(found: re.Match[str]) -> str:
    """It escapes what needs two UTF-16 units, and writes the digits of escapes in capitals."""
    text = found[0]
    if text.startswith("\\u"):
        return "\\u" + text[2:].upper()
    units = text.encode("utf-16-be").hex().upper()
    return text if text.startswith("\\") else f"\\u{units[:4]}\\u{units[4:]}"


def _key(kind: type[RepositoryConfig]) -> bytes:
    return text_key(f"configs\0{config_name(kind)}")
