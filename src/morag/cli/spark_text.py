"""Formats rows of reports as text, for people and for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from morag.model.keys import ContentKey

if TYPE_CHECKING:
    from collections.abc import Iterable

Values: TypeAlias = Mapping[str, Any]
"""One row: the values of its columns."""

Formatter: TypeAlias = Callable[[Sequence[Values]], str]

_SIGNS: Final = {"ADDED": "+", "REMOVED": "-", "CHANGED": "~", "RENAMED": ">", "REPLACED": "!"}
_UNITS: Final = ("B", "KB", "MB", "GB", "TB", "PB")
_WIDEST: Final = 60
_WHOLE: Final = frozenset({"path", "location", "quarantined", "problem", "detail"})
"""Columns whose values must not be cut."""


def json_lines(rows: Iterable[Values]) -> str:
    return "".join(msgspec.json.encode(row).decode() + "\n" for row in rows)


def table_text(rows: Sequence[Values]) -> str:
    """A plain table. Long values of most columns are cut; JSON has them complete."""
    if not rows:
        return "(no rows)\n"
    names = list(rows[0])
    cells = [names, *([_cell(name, row[name]) for name in names] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(names))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )
    return "\n".join(lines) + "\n"


def diff_text(rows: Sequence[Values]) -> str:
    """A diff for people: a line per content, with its changes below."""
    if not rows:
        return "no differences\n"
    return "".join(_difference(row) for row in rows)


def _difference(row: Values) -> str:
    key, old_key = ContentKey(tuple(row["key"])).escaped, row["old_key"]
    was = f" (was {ContentKey(tuple(old_key)).escaped})" if old_key else ""
    counts = [
        _counted("rows", row["from_rows"], row["to_rows"]),
        _counted("files", row["from_files"], row["to_files"]),
        _sized(row["from_bytes"], row["to_bytes"]),
    ]
    facts = "; ".join(each for each in counts if each)
    sign, type = _SIGNS[row["change"]], row["content_type"]
    lines = [f"{sign} {key}{was}  {type}{facts and f'  {facts}'}"]
    history, operations = row["history"], ", ".join(row["operations"] or ())
    if history not in (None, "SAME"):
        lines.append(f"    {history.lower()}{operations and f': {operations}'}")
    lines += [f"    {change}" for change in (*row["schema_changes"], *row["other_changes"])]
    if row["problem"]:
        lines.append(f"    no further details: {row['problem']}")
    return "\n".join(lines) + "\n"


def _counted(noun: str, old: int | None, new: int | None) -> str:
    if old is None or new is None:
        known = new if old is None else old
        return "" if known is None else f"{known} {noun}"
    return f"{noun} {old} to {new} ({new - old:+})" if old != new else f"{new} {noun}"


def _sized(old: int | None, new: int | None) -> str:
    if old is None or new is None:
        known = new if old is None else old
        return "" if known is None else size(known)
    return f"{size(old)} to {size(new)}" if old != new else size(new)


def size(size_bytes: int) -> str:
    amount = float(size_bytes)
    for unit in _UNITS:
        if amount < 1000 or unit == _UNITS[-1]:
            break
        amount /= 1000
    return f"{size_bytes} B" if unit == "B" else f"{amount:.1f} {unit}"


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "key" or name.endswith("_key"):
        return ContentKey(tuple(value)).escaped
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    text = text.replace("\n", " ")
    return text if name in _WHOLE or len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
