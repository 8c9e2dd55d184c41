"""What the URL of a store tells a server: where it runs, who may share it, what to hide."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from morag.backend.urls import StoreUrl
from morag.masking import masked

if TYPE_CHECKING:
    from collections.abc import Callable

_IN_THIS_PROCESS: Final = frozenset({"memory", "rocksdb", "sqlite"})
_OF_ONE_PROCESS: Final = frozenset({"memory", "rocksdb"})


def is_embedded(url: str) -> bool:
    """Whether a read takes microseconds, so that it can be done where the requests come in."""
    return StoreUrl.parse(url).scheme in _IN_THIS_PROCESS


def is_in_memory(url: str) -> bool:
    """Whether also a write takes microseconds."""
    return StoreUrl.parse(url).scheme == "memory"


def has_files(url: str) -> bool:
    """Whether it is stored in files of this machine, which somebody may remove."""
    return is_embedded(url) and not is_in_memory(url)


def is_shared(url: str) -> bool:
    """Whether several processes can work on it at the same time."""
    return StoreUrl.parse(url).scheme not in _OF_ONE_PROCESS


def hiding(url: str) -> Callable[[str], str]:
    """A function that takes out of any text what `masked` takes out of this URL."""
    shown = masked(url).split("***")
    found = re.fullmatch("(.*)".join(map(re.escape, shown)), url, re.DOTALL)
    assert found is not None, "masking replaces, and changes nothing else"
    secrets = {form for secret in found.groups() for form in (secret, unquote(secret)) if form}
    longest_first = sorted(secrets, key=len, reverse=True)
    if not secrets:
        return str
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    return lambda text: pattern.sub("***", text)
