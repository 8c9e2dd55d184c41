"""Configs of the repository as the JSON strings that Nessie stores."""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec

from morag.errors import RepositoryCorrupt
from morag.format.damage import UNREADABLE
from morag.format.objects import StringObj
from morag.model.configs import RepositoryConfig, config_name

C = TypeVar("C", bound=RepositoryConfig)

_ESCAPED: Final = re.compile(r"\\u[0-9a-f]{4}|\\.|[\U00010000-\U0010ffff]")


def string_of_config(config: RepositoryConfig) -> StringObj:
    """The bytes must be Nessie's: otherwise equal configs would be different objects."""
    text = msgspec.json.encode(config).decode()
    return StringObj("application/json", _ESCAPED.sub(_escaped, text).encode())


def config_of_string(kind: type[C], stored: StringObj) -> C:
    """Does not check the config: one that Nessie accepted must stay readable."""
    try:
        return msgspec.json.decode(stored.text, type=kind)
    except (*UNREADABLE, msgspec.MsgspecError) as error:
        raise RepositoryCorrupt(
            f"The stored config {config_name(kind)} cannot be read, store it anew: {error} "
            f"(object {stored.id.hex()})"
        ) from None


def _escaped(found: re.Match[str]) -> str:
    """Nessie escapes characters of two UTF-16 units, and writes escapes in upper-case hex."""
    text = found[0]
    if text.startswith("\\u"):
        return "\\u" + text[2:].upper()
    units = text.encode("utf-16-be").hex().upper()
    return text if text.startswith("\\") else f"\\u{units[:4]}\\u{units[4:]}"
