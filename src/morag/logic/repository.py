"""Creates a repository in a store, and reads its description."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from morag.errors import ReferenceAlreadyExists, RepositoryCorrupt, RepositoryMissing
from morag.format.damage import UNREADABLE
from morag.format.ids import NO_ANCESTOR
from morag.format.index_entries import parts_of, value_of
from morag.format.object_codec import decode
from morag.format.objects import Commit, CommitKind, StringObj
from morag.index.keys import text_key
from morag.index.layered import index_of
from morag.logic.commits import Add
from morag.logic.history import head_commit
from morag.logic.internal_refs import (
    REFS,
    REPOSITORY,
    commit_internal,
    insert_internal,
    internal_draft,
    missing,
    pointer_of,
)
from morag.model.names import full_name
from morag.model.times import instant_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from morag.format.records import Row
    from morag.index.layered import CommitIndex
    from morag.logic.commits import Draft
    from morag.logic.references import References
    from morag.logic.retry import Retries
    from morag.persist.persist import Persist

_MOST_LEFT: Final = 20
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
        raise RepositoryMissing(
            "The store holds no such repository, and it was opened read-only; "
            "start a server on it, or check its URL and the repository's id"
        )


def is_unused(rows: Iterable[Row]) -> bool:
    """Whether the rows of a store without references are only beginnings of imports.

    Others are left from an erase that was interrupted. An import would keep their commits as they
    are, whose history may have been cut.
    """
    found = list(islice(rows, _MOST_LEFT + 1))
    return len(found) <= _MOST_LEFT and all(map(_is_internal, found))


def initialize_for_import(persist: Persist, description: RepositoryDescription) -> None:
    """Create a repository without references, unless it exists.

    The description, which says that an import is under way, comes first here: a server that starts
    at this moment finds it, and refuses the repository.
    """
    headers = {
        "repo.id": persist.settings.repository_id,
        "timestamp": description.repository_created_time,
    }
    text = StringObj("application/json", msgspec.json.encode(description))
    add = Add(_DESCRIPTION, 0, text.id)
    for name, adds, objects in ((REPOSITORY, [add], [text]), (REFS, [], [])):
        if pointer_of(persist, name) is None:
            draft = internal_draft(f"Initialize reference {name}", headers, adds)
            insert_internal(persist, name, draft, objects)


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


def update_description(
    persist: Persist,
    retries: Retries,
    change: Callable[[RepositoryDescription], RepositoryDescription],
) -> None:
    """Store the description that `change` makes of the current one, unless it is the same."""
    texts: list[StringObj] = []

    def draft(stored: CommitIndex) -> Draft | None:
        op = stored.get(_DESCRIPTION)
        before = read_description(persist)
        after = change(before)
        if op is None or after == before:
            return None
        texts[:] = [StringObj("application/json", msgspec.json.encode(after))]
        payload, value, content_id = parts_of(op)
        add = Add(_DESCRIPTION, payload, texts[0].id, content_id, value)
        headers = {"timestamp": instant_text(persist.clock_nanos())}
        return internal_draft("Update repository description", headers, [add])

    commit_internal(persist, retries, REPOSITORY, draft, texts)


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


def _is_internal(row: Row) -> bool:
    try:
        obj = decode(row)
    except RepositoryCorrupt:
        return False
    if isinstance(obj, Commit):
        return obj.kind is CommitKind.INTERNAL
    return isinstance(obj, StringObj)
