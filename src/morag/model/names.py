"""Names of references, commit hashes, and the words of cut-off policies."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import Final, Literal, TypeAlias

from morag.errors import BadRequest
from morag.model.times import parse_instant

ReferenceKind: TypeAlias = Literal["BRANCH", "TAG"]

NAME_RULE: Final = (
    "Reference name must start with a letter, followed by letters, digits, one of the ./_- "
    "characters, not end with a slash or dot, not contain '..'"
)
HASH_RULE: Final = "Hash must consist of the hex representation of 4-32 bytes"

NO_ANCESTOR_HASH: Final = sha256(b"empty").hexdigest()
"""The parent of every first commit, and the head of a reference without a commit."""

_NAME: Final = re.compile(r"-|[A-Za-z](?:(?:(?!\.\.)[A-Za-z0-9./_-])*[A-Za-z0-9_-])?")
_HASH: Final = re.compile(r"[0-9a-fA-F]{8,64}")
_LONGEST_NAME: Final = 10_000  # No store takes longer ones, and checking them would take long.
_FORBIDDEN: Final = frozenset({"HEAD", "DETACHED"})
_BRANCHES: Final = "refs/heads/"
_TAGS: Final = "refs/tags/"

_COMMITS: Final = re.compile(r"[1-9][0-9]{0,10}")
_DURATION: Final = re.compile(
    r"[-+]?P(?=[-+0-9T])(?:[-+]?[0-9]+D)?"
    r"(?:T(?=[-+0-9])(?:[-+]?[0-9]+H)?(?:[-+]?[0-9]+M)?(?:[-+]?[0-9]+(?:[.,][0-9]{0,9})?S)?)?",
    re.ASCII | re.IGNORECASE,
)


def check_reference_name(name: str) -> None:
    """Refuse a name that no reference can have. `-` is a legal name."""
    try:
        is_valid = len(name) <= _LONGEST_NAME and _is_name(name)
    except TypeError:  # Not a text: it cannot be measured or cached.
        is_valid = False
    if not is_valid:
        raise BadRequest(NAME_RULE)


def check_new_reference_name(name: str) -> None:
    """Refuse also a name that clients would not take for that of a reference."""
    check_reference_name(name)
    if name.upper() in _FORBIDDEN or _HASH.fullmatch(name):
        raise BadRequest(  # Nessie has this spelling mistake, and clients may search for the text.
            "Reference name mut not be HEAD, DETACHED or a potential commit ID representation. "
            f"- but was {name}"
        )


def check_hash(text: str) -> str:
    """The hash in lower case. A prefix passes, although it resolves to no commit."""
    if not _is_text_like(_HASH, text):
        raise BadRequest(HASH_RULE)
    return text.lower()


def full_name(kind: ReferenceKind, name: str) -> str:
    """The name under which a branch or a tag is stored."""
    return (_BRANCHES if kind == "BRANCH" else _TAGS) + name


def split_full_name(full: str) -> tuple[ReferenceKind, str] | None:
    """Undo `full_name`. None for internal references, which users never see."""
    if full.startswith(_BRANCHES):
        return "BRANCH", full[len(_BRANCHES) :]
    if full.startswith(_TAGS):
        return "TAG", full[len(_TAGS) :]
    return None


@lru_cache(maxsize=256)  # Several layers check the same few names.
def _is_name(name: object) -> bool:
    return _is_text_like(_NAME, name)


def _is_text_like(pattern: re.Pattern[str], text: object) -> bool:
    return isinstance(text, str) and pattern.fullmatch(text) is not None


def check_cutoff_policy(text: str) -> None:
    """Refuse a text that garbage collection could not parse as a cut-off policy."""
    if text.upper() == "NONE" or _COMMITS.fullmatch(text) or _DURATION.fullmatch(text):
        return
    try:
        parse_instant(text)
    except BadRequest:
        raise BadRequest(
            f"Cut-off policy '{text}' must be NONE, a number of commits, a duration such as P30D "
            "or PT12H, or a time such as 2011-12-03T10:15:30Z"
        ) from None
