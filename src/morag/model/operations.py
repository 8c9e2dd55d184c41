"""The operations of a commit, each on one key."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from morag.model.content import Content
from morag.model.keys import ContentKey

Key: TypeAlias = Annotated[ContentKey, Meta(description="The content key that this applies to.")]


class Put(Struct, frozen=True, tag="PUT", tag_field="type", rename="camel"):
    """Create or update. An update has the content id of the existing content, a new key has none.

    `expected_content`, if given, must be what the branch holds. Only `morag.open` checks it; API v1
    accepts and ignores it, and the client refuses it.
    """

    key: Key
    content: Content
    expected_content: Content | None = None


class Delete(Struct, frozen=True, tag="DELETE", tag_field="type"):
    """Remove the key. Together with a Put of the same content id elsewhere it is a rename."""

    key: Key


class Unchanged(Struct, frozen=True, tag="UNCHANGED", tag_field="type"):
    """Require that the key has not changed since the expected commit. Nothing is stored for it."""

    key: Key


Operation: TypeAlias = Put | Delete | Unchanged
