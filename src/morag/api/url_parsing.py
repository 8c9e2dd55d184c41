"""Parses parts of URLs: percent-encoding, and content keys in a path or query."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_to_bytes

from morag.errors import BadRequest
from morag.model.keys import ContentKey, check_elements

_ILLEGAL: Final = re.compile(r'["<>\\^`{|}\[\]\x00-\x20\x7f]|%(?![0-9A-Fa-f]{2})')
_ESCAPES: Final = {".": ".", "*": "*", "{": "/", "}": "\\", "[": "%"}
_ESCAPED_DOTS: Final = re.compile("[\x00\x1d]")


class UrlInvalid(Exception):
    """A URL that is not valid: 400 without a body."""


class NoSuchPath(Exception):
    """A path that does not exist, or a parameter that is not valid: 404 without a body."""


def check_path(path: str) -> None:
    """Refuse characters that must be percent-encoded in a URL."""
    if _ILLEGAL.search(path):
        raise UrlInvalid(path)


def decoded(text: str) -> str:
    """Undo percent-encoding."""
    if "%" not in text:
        return text
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise UrlInvalid(text) from None


@lru_cache(maxsize=4096)  # Clients request the same few tables.
def key_in_path(text: str) -> ContentKey:
    """The key in an element of a path. It must not be empty."""
    key = key_in_query(text)
    if not key.elements:
        raise NoSuchPath(text)
    return key


def key_in_query(text: str) -> ContentKey:
    """The key in a query parameter. It may be empty, which is written as `.` or as no text."""
    try:
        key = key_of_text(text)
        check_elements("Content key", key.elements)
    except BadRequest:
        raise NoSuchPath(text) from None
    return key


def key_of_text(text: str) -> ContentKey:
    """Parse `a.b`, or the escaped form that starts with a dot. A dot at the end is ignored."""
    if text.startswith("."):
        elements = _escaped(text[1:])
    else:
        elements = [_ESCAPED_DOTS.sub(".", element) for element in text.split(".")]
    if not elements[-1]:
        elements.pop()
    return ContentKey(tuple(elements))


def _escaped(text: str) -> list[str]:
    elements: list[list[str]] = [[]]
    letters = iter(text)
    for letter in letters:
        if letter == ".":
            elements.append([])
        elif letter == "*":
            following = next(letters, "")
            if following not in _ESCAPES:
                raise BadRequest(f"'*{following}' is no escape in a content key: '{text}'")
            elements[-1].append(_ESCAPES[following])
        else:
            elements[-1].append(letter)
    return ["".join(element) for element in elements]
