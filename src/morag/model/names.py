"""Names of references, commit hashes, and the words of cut-off policies."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from morag.errors import BadRequest
from morag.model.times import parse_instant

ReferenceKind: TypeAlias = Literal["BRANCH", "TAG"]

NAME_RULE: Final = (
    "Reference name must start with a letter, followed by letters, digits, one of the ./_- "
    "characters, not end with a slash or dot, not contain '..'"
)
HASH_RULE: Final = "Hash must consist of the hex representation of 4-32 bytes"

_NAME: Final = re.compile(r"-|[A-Za-z](?:(?:(?!\.\.)[A-Za-z0-9./_-])*[A-Za-z0-9_-])?")
_HASH: Final = re.compile(r"[0-9a-fA-F]{8,64}")
_LONGEST_NAME: Final = 10_000  # No store takes so many, and to look at more would take long.
_FORBIDDEN: Final = frozenset({"HEAD", "DETACHED"})
_PREFIXES: Final[dict[ReferenceKind, str]] = {"BRANCH": "refs/heads/", "TAG": "refs/tags/"}

_COMMITS: Final = re.compile(r"[1-9][0-9]{0,10}")
_DURATION: Final = re.compile(
    r"[-+]?P(?=[-+0-9T])(?:[-+]?[0-9]+D)?"
    r"(?:T(?=[-+0-9])(?:[-+]?[0-9]+H)?(?:[-+]?[0-9]+M)?(?:[-+]?[0-9]+(?:[.,][0-9]{0,9})?S)?)?",
    re.ASCII | re.IGNORECASE,
)


def check_reference_name(name: str) -> None:
    """Refuse what no reference can be called. `-` is a legal name."""
    try:
        right = len(name) <= _LONGEST_NAME and _is_name(name)
    except TypeError:  # It cannot be remembered, because it is no text.
        right = False
    if not right:
        raise BadRequest(NAME_RULE)


def check_new_reference_name(name: str) -> None:
    """Refuse also what clients would read as something else than a reference."""
    check_reference_name(name)
    if name.upper() in _FORBIDDEN or _HASH.fullmatch(name):
        raise BadRequest(  # Misspelt on the wire since ever: clients may look for this text.
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
    return _PREFIXES[kind] + name


def split_full_name(full: str) -> tuple[ReferenceKind, str] | None:
    """Undo `full_name`. None for internal references, which users never see."""
    for kind, prefix in _PREFIXES.items():
        if full.startswith(prefix):
            return kind, full[len(prefix) :]
    return None


@lru_cache(maxsize=256)  # Each floor looks for itself, mostly at the same few names.
def _is_name(name: object) -> bool:
    return _is_text_like(_NAME, name)


def _is_text_like(pattern: re.Pattern[str], text: object) -> bool:
    return isinstance(text, str) and pattern.fullmatch(text) is not None


def check_cutoff_policy(text: str) -> None:
    """Refuse what garbage collection could not read as "older than this may go"."""
    if text.upper() == "NONE" or _COMMITS.fullmatch(text) or _DURATION.fullmatch(text):
        return
    try:
        parse_instant(text)
    except BadRequest:
        raise BadRequest(
            f"Cut-off policy '{text}' must be NONE, a number of commits, a duration such as P30D "
            "or PT12H, or a time such as 2011-12-03T10:15:30Z"
        ) from None
