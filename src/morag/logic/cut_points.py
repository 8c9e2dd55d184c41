"""The commits at which `morag admin cut-history` removed the ancestors.

The id of such a commit was computed with its former parent, so it no longer follows from the row.
Nessie's tool adds a note to the message, by which `refutation.py` recognises its commits. Morag
leaves the message alone and notes the commit in the properties of the repository's description.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from morag.format.proof import is_proven
from morag.format.records import ObjId
from morag.logic.repository import read_description, update_description

if TYPE_CHECKING:
    from morag.format.objects import Commit
    from morag.logic.repository import RepositoryDescription
    from morag.logic.retry import Retries
    from morag.persist.persist import Persist

_PREFIX: Final = "morag.cut-history."
_UNKNOWN: Final = "unknown"


def recorded_parent(persist: Persist, commit: Commit) -> ObjId | None:
    """The former parent of a cut commit, empty if its id cannot be checked with it.

    None if no cut at this commit is recorded.
    """
    noted = read_description(persist).properties.get(_PREFIX + commit.id.hex())
    if noted is None:
        return None
    return ObjId(b"" if noted == _UNKNOWN else bytes.fromhex(noted))


def record_cut(persist: Persist, retries: Retries, commit: Commit) -> None:
    """Note that the ancestors of the commit, which it still has, will be removed.

    As long as the commit has its parent, the note means nothing.
    """
    parent = commit.parent.hex() if is_proven(commit) else _UNKNOWN

    def noted(before: RepositoryDescription) -> RepositoryDescription:
        return replace(before, properties={**before.properties, _PREFIX + commit.id.hex(): parent})

    update_description(persist, retries, noted)


def unchecked_cuts(properties: dict[str, str]) -> dict[str, str]:
    """The properties of a description, with cuts at commits whose ids cannot be checked.

    An export gives such commits the entries that they inherited as operations.
    """
    return {
        name: _UNKNOWN if name.startswith(_PREFIX) else value for name, value in properties.items()
    }


def is_proven_with(commit: Commit, parent: ObjId) -> bool:
    """Whether the id follows from the row of a cut commit and its former parent."""
    return is_proven(replace(commit, tail=(parent,)))
