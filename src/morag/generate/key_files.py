"""Reads keys from files: lines of elements or paths, and Nessie's reports about contents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from morag.errors import BadRequest
from morag.generate.generated_keys import key_of_path
from morag.model.keys import ContentKey, check_key

if TYPE_CHECKING:
    from collections.abc import Sequence

CSV_KEYS: Final = "CSV_KEYS"
CONTENT_INFO_JSON: Final = "CONTENT_INFO_JSON"
FORMATS: Final = (CSV_KEYS, CONTENT_INFO_JSON)


class ReportedContent(Struct, frozen=True):
    """A content in a report: its key, and the reference that has it."""

    key: ContentKey
    reference: str | None = None


def read_keys(path: str, format: str, separator: str | None) -> Sequence[ReportedContent]:
    """The keys in a file, in their order. Lines have no reference.

    Without a separator, a line is a path: dots between elements, U+001D for dots inside of them.
    """
    try:
        data = Path(path).read_bytes()
        if format == CONTENT_INFO_JSON:
            found = msgspec.json.decode(data, type=list[ReportedContent])
        else:
            lines = data.decode().splitlines()
            found = [ReportedContent(_key(line, separator)) for line in lines if line.strip()]
    except (OSError, UnicodeError, msgspec.MsgspecError) as error:
        raise BadRequest(f"Keys cannot be read from '{path}' as {format}: {error}") from None
    for each in found:
        check_key(each.key)
    return found


def _key(line: str, separator: str | None) -> ContentKey:
    return key_of_path(line) if separator is None else ContentKey(tuple(line.split(separator)))
