"""Creates a repository in a store, and reads its description."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from morag.errors import ReferenceAlreadyExists, RepositoryCorrupt, StoreUrlInvalid
from morag.format.damage import UNREADABLE
from morag.format.ids import NO_ANCESTOR
from morag.format.index_entries import value_of
from morag.format.objects import StringObj
from morag.index.keys import text_key
from morag.index.layered import index_of
from morag.logic.commits import Add
from morag.logic.history import head_commit
from morag.logic.internal_refs import (
    REFS,
    REPOSITORY,
    insert_internal,
    internal_draft,
    missing,
    pointer_of,
)
from morag.model.names import full_name
from morag.model.times import instant_text

if TYPE_CHECKING:
    from morag.logic.references import References
    from morag.persist.persist import Persist

_DESCRIPTION: Final = text_key("repo\0description")


class RepositoryDescription(Struct, frozen=True, rename="camel"):
    """Stored as JSON in exactly these fields: Nessie refuses others."""

    repository_created_time: str
    oldest_possible_commit_time: str
    properties: dict[str, str] = {}
    default_branch_name: str = "main"
    repository_imported_time: str | None = None


def check_exists(persist: Persist) -> None:
    """Refuse a read-only store that does not have the repository."""
    if pointer_of(persist, REPOSITORY) is None:
        raise StoreUrlInvalid(
            "The store holds no such repository, and it was opened read-only; "
            "start a server on it, or check its URL and the repository's id"
        )


def initialize(persist: Persist, references: References) -> None:
    """Create the repository, without the steps that were already done.

    The reference `int/repo` is created last: if it exists, everything else does.
    """
    if pointer_of(persist, REPOSITORY) is not None:
        return
    now = instant_text(persist.clock_nanos())
    headers = {"repo.id": persist.settings.repository_id, "timestamp": now}
    if pointer_of(persist, REFS) is None:
        insert_internal(persist, REFS, internal_draft(f"Initialize reference {REFS}", headers), [])
    branch = persist.settings.default_branch
    # The branch exists if an earlier start was interrupted after this step, or if another server
    # starts now.
    with suppress(ReferenceAlreadyExists):
        references.create(full_name("BRANCH", branch), NO_ANCESTOR)
    description = RepositoryDescription(now, now, default_branch_name=branch)
    text = StringObj("application/json", msgspec.json.encode(description))
    add = Add(_DESCRIPTION, 0, text.id)
    draft = internal_draft(f"Initialize reference {REPOSITORY}", headers, [add])
    insert_internal(persist, REPOSITORY, draft, [text])


def read_description(persist: Persist) -> RepositoryDescription:
    pointer = pointer_of(persist, REPOSITORY)
    if pointer is None:
        raise missing(REPOSITORY)
    op = index_of(persist, head_commit(persist, pointer)).get(_DESCRIPTION)
    if op is None:
        raise RepositoryCorrupt.object(pointer, "has no description of the repository")
    stored = persist.fetch(StringObj, value_of(op))
    try:
        return msgspec.json.decode(stored.text, type=RepositoryDescription)
    except (*UNREADABLE, msgspec.MsgspecError) as damage:
        raise RepositoryCorrupt.object(
            stored.id, f"is not a readable description of the repository ({damage})"
        ) from damage
