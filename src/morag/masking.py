"""Hides passwords in URLs and in texts for users and logs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable

# Both patterns rather hide too much: an unescaped password may contain any character.
_PASSWORD: Final = re.compile(r"(://[^:]*):.*@", re.DOTALL)
_SECRET_OPTION: Final = re.compile(
    r"((?:(?:pass|pwd|token|secret|credential)[\w.-]*|key|authMechanismProperties)=)[^&]*",
    re.IGNORECASE,
)


def masked(url: str) -> str:
    """The URL with its passwords and tokens hidden, fit for logs and messages."""
    return _PASSWORD.sub(r"\1:***@", _SECRET_OPTION.sub(r"\1***", url))


def hiding(url: str) -> Callable[[str], str]:
    """A function that hides in any text the secrets that `masked` hides in this URL."""
    shown = masked(url).split("***")
    found = re.fullmatch("(.*)".join(map(re.escape, shown)), url, re.DOTALL)
    assert found is not None, "masking replaces, and changes nothing else"
    secrets = {form for secret in found.groups() for form in (secret, unquote(secret)) if form}
    longest_first = sorted(secrets, key=len, reverse=True)
    if not secrets:
        return str
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    return lambda text: pattern.sub("***", text)
