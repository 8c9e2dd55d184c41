"""Keys of engines that sort by key: prefixes of repositories, and ranges of ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.errors import BadRequest

if TYPE_CHECKING:
    from morag.backend.base import Slice

_HASH_BYTES: Final = 32


def prefix_of(repo: str) -> bytes:
    """The start of the keys of refs and rows, as in Nessie."""
    return repo.encode() + b":"


def log_prefix_of(repo: str) -> bytes:
    """The start of the keys of log lines. It is Morag's own: no prefix starts with another one."""
    return repo.replace("%", "%25").replace(":", "%3A").encode() + b":"


def after(prefix: bytes) -> bytes:
    """The first key after all keys with the prefix, which ends with a colon."""
    return prefix[:-1] + b";"


def row_key(prefix: bytes, id: bytes) -> bytes:
    """The key of a row to write. Refuses an id that readers could not recognise."""
    if not is_row_id(id):
        raise BadRequest(f"The store cannot keep an object whose id is {id!r}")
    return prefix + id


def is_row_id(id: bytes) -> bool:
    """Whether the rest of a key is an id, and not the rest of a repository's name with an id.

    The keys of repository `a:b` start like those of `a`. But ids are hashes, or names without a
    colon.
    """
    return len(id) == _HASH_BYTES or b":" not in id


def id_range(part: Slice) -> tuple[bytes, bytes | None]:
    """The first id of the part, and the first id after it; `None` stands for the end.

    The bounds cut the space of the first four bytes into equal ranges. Compared as byte strings
    they put an id of any length into exactly one part, also an empty one.
    """
    assert 0 <= part.index < part.count <= 1 << 32, f"there is no part {part}"
    low = _bound(part.index, part.count) if part.index else b""
    high = _bound(part.index + 1, part.count) if part.index + 1 < part.count else None
    return low, high


def _bound(index: int, count: int) -> bytes:
    return ((index << 32) // count).to_bytes(4, "big")
