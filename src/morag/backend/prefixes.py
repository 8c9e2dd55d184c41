"""Keys that start with a repository's name, in engines that keep those of all in one order."""

from __future__ import annotations

from typing import Final

from morag.errors import BadRequest

_HASH_BYTES: Final = 32


def prefix_of(repo: str) -> bytes:
    """In front of the keys of refs and rows, as the original has it."""
    return repo.encode() + b":"


def log_prefix_of(repo: str) -> bytes:
    """As for refs and rows, but no repository's prefix starts another's: these keys are ours."""
    return repo.replace("%", "%25").replace(":", "%3A").encode() + b":"


def after(prefix: bytes) -> bytes:
    """The first key behind all that start with the prefix, which ends with a colon."""
    return prefix[:-1] + b";"


def row_key(prefix: bytes, id: bytes) -> bytes:
    """The key to write a row under, which a reader then finds."""
    if not is_row_id(id):
        raise BadRequest(f"The store cannot keep an object whose id is {id!r}")
    return prefix + id


def is_row_id(id: bytes) -> bool:
    """Whether the rest of a key is an id, and not the end of a repository's name and an id.

    The keys of repository `a:b` start like those of `a`. But ids are hashes, or else plain names.
    """
    return len(id) == _HASH_BYTES or b":" not in id
