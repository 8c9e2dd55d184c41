"""What a commit asks for, per key."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from morag.model.content import Content
from morag.model.keys import ContentKey


class Put(Struct, frozen=True, tag="PUT", tag_field="type", rename="camel"):
    """Create or update. An update carries the content id it found, a new key carries none.

    `expected_content`, if given, must be what the branch holds; only API v1 sends it.
    """

    key: ContentKey
    content: Content
    expected_content: Content | None = None


class Delete(Struct, frozen=True, tag="DELETE", tag_field="type"):
    """Remove the key. Together with a Put of the same content id elsewhere it is a rename."""

    key: ContentKey


class Unchanged(Struct, frozen=True, tag="UNCHANGED", tag_field="type"):
    """Assert that nobody changed the key since the expected commit. Nothing is stored for it."""

    key: ContentKey


Operation: TypeAlias = Put | Delete | Unchanged
