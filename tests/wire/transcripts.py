"""Recorded conversations with Nessie, and a comparison of other servers with them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pytest
from msgspec import Struct

_DATA: Final = Path(__file__).parents[1] / "data" / "transcripts"
_PLACEHOLDER: Final = re.compile(r"\$\{([HTCP]\d+|NA)(?::(\w+))?\}|\$([HTCP]\d+|NA)(?!\w)")
_LOOKS_LIKE: Final = {
    "H": "[0-9a-f]{16,64}",
    "C": "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "T": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z",
    "P": ".+",
}
_VOLATILE: Final = re.compile("|".join(_LOOKS_LIKE[kind] for kind in "HCT"))
_COPIED: Final = re.compile(
    r"Cannot construct instance of .* - but was: .*\n(?= at \[Source|\Z)"
    r"|Could not resolve type id '.*' as a subtype of `org\.projectnessie\.model\.Reference`",
    re.DOTALL,
)
_NO_ANCESTOR: Final = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"


class Reply(Struct, frozen=True):
    """An answer; header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class SentRequest(Struct, frozen=True):
    """A request with its placeholders filled in."""

    method: str
    path: str
    query: str
    headers: list[tuple[str, str]]
    body: bytes | None


class Interaction(Struct, frozen=True, kw_only=True):
    seq: int
    method: str
    path: str
    status: int
    note: str = ""
    query: str = ""
    headers: dict[str, str | list[str]] = {}
    body: Any = None
    body_raw: str | None = None
    response: Any = None
    response_text: str | None = None
    response_ignored: bool = False
    response_headers: dict[str, str] = {}
    unordered: tuple[str, ...] = ()
    java_message: bool = False
    volatile_message: bool = False
    quirk: bool = False

    def __str__(self) -> str:
        return f"#{self.seq} {self.method} {self.path}?{self.query} ({self.note})"


class Scenario(Struct, frozen=True):
    name: str
    is_global: bool
    interactions: tuple[Interaction, ...]


def scenarios() -> list[Scenario]:
    return [_scenario(file) for file in sorted(_DATA.glob("*.jsonl"))]


def replay(scenario: Scenario, ask: Callable[[SentRequest], Reply]) -> None:
    """Send the requests of the scenario in order, and compare the answers."""
    known = Known()
    for interaction in scenario.interactions:
        if interaction.quirk:
            continue
        reply = ask(_sent_request(interaction, known))
        differences = list(_differences(interaction, reply, known))
        if differences:
            pytest.fail("\n  ".join([f"{scenario.name} {interaction}", *differences]))


def copied(message: str) -> str:
    """The part of a Java library's message that clients search for, so that Morag copies it."""
    found = _COPIED.match(message)
    return "" if found is None else found[0]


class Known:
    """The values of placeholders, from the answers so far."""

    def __init__(self) -> None:
        self._values = {"NA": _NO_ANCESTOR}

    def filled(self, text: str, *, quoted: bool = False) -> str:
        def value(found: re.Match[str]) -> str:
            name = found[1] or found[3]
            text = _derived(self._values[name], found[2])
            return quote(text, safe="") if quoted and name.startswith("P") else text

        return _PLACEHOLDER.sub(value, text)

    def matches(self, expected: str, found: str) -> bool:
        """Whether the text matches. New placeholders get their value from it."""
        pattern, position, new = "", 0, set()
        for place in _PLACEHOLDER.finditer(expected):
            name = place[1] or place[3]
            pattern += re.escape(expected[position : place.start()])
            position = place.end()
            if name in self._values:
                pattern += re.escape(_derived(self._values[name], place[2]))
            elif name in new:
                pattern += f"(?P={name})"
            else:
                pattern += f"(?P<{name}>{_LOOKS_LIKE[name[0]]})"
                new.add(name)
        match = re.fullmatch(pattern + re.escape(expected[position:]), found, re.DOTALL)
        if match is None:
            return False
        self._values.update(match.groupdict())
        return True


def _scenario(file: Path) -> Scenario:
    head, *lines = (json.loads(line) for line in file.read_text().splitlines() if line)
    interactions = msgspec.convert(lines, tuple[Interaction, ...])
    return Scenario(file.stem, head["global"], interactions)


def _sent_request(interaction: Interaction, known: Known) -> SentRequest:
    headers = [
        (name, known.filled(value))
        for name, values in interaction.headers.items()
        for value in (values if isinstance(values, list) else [values])
    ]
    body = None
    if interaction.body_raw is not None:
        body = known.filled(interaction.body_raw).encode()
    elif interaction.body is not None:
        filled = _changed(interaction.body, known.filled)
        body = json.dumps(filled, ensure_ascii=False).encode()
    query = known.filled(interaction.query, quoted=True)
    return SentRequest(interaction.method, known.filled(interaction.path), query, headers, body)


def _differences(interaction: Interaction, reply: Reply, known: Known) -> list[str]:
    found: list[str] = []
    if reply.status != interaction.status:
        found.append(f"status {interaction.status} expected, got {reply.status} {reply.body!r}")
    for name, value in interaction.response_headers.items():
        if not known.matches(value, reply.headers.get(name, "")):
            found.append(f"header {name}: {value!r} expected, got {reply.headers.get(name)!r}")
    if interaction.response_ignored:
        return found
    loose = interaction.java_message or interaction.volatile_message
    if interaction.response is not None:
        try:
            answer = json.loads(reply.body)
        except ValueError:
            return [*found, f"JSON expected, got {reply.body!r}"]
        answer = _sorted(answer, interaction.unordered)
        _compare(interaction.response, answer, known, "body", found, loose)
    elif interaction.response_text is not None:
        if not loose and not known.matches(interaction.response_text, reply.body.decode()):
            found.append(f"text {interaction.response_text!r} expected, got {reply.body!r}")
    elif reply.body:
        found.append(f"no body expected, got {reply.body!r}")
    return found


def _compare(
    expected: Any, found: Any, known: Known, where: str, differences: list[str], loose: bool
) -> None:
    if isinstance(expected, dict) and isinstance(found, dict):
        if expected.keys() != found.keys():
            differences.append(f"{where} has {sorted(found)}, not {sorted(expected)}")
        for name in expected.keys() & found.keys():
            if not (loose and name == "message"):
                inner = f"{where}.{name}"
                _compare(expected[name], found[name], known, inner, differences, loose)
            elif not known.matches(copied(expected[name]), copied(found[name])):
                differences.append(f"{where}.{name} is {found[name]!r}, not {expected[name]!r}")
    elif isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            differences.append(f"{where} has {len(found)} items, not {len(expected)}: {found}")
        for at, (one, other) in enumerate(zip(expected, found, strict=False)):
            _compare(one, other, known, f"{where}[{at}]", differences, loose)
    elif isinstance(expected, str) and isinstance(found, str):
        if not known.matches(expected, found):
            differences.append(f"{where} is {found!r}, not {expected!r}")
    elif type(expected) is not type(found) or expected != found:
        differences.append(f"{where} is {found!r}, not {expected!r}")


def _sorted(value: Any, names: tuple[str, ...]) -> Any:
    """Sort the lists of these names by the constant part of their items."""
    if isinstance(value, list):
        return [_sorted(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    inner = {name: _sorted(item, names) for name, item in value.items()}
    for name in names:
        if isinstance(inner.get(name), list):
            inner[name].sort(key=lambda item: _VOLATILE.sub("*", json.dumps(item, sort_keys=True)))
    return inner


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {change(name): _changed(item, change) for name, item in value.items()}
    if isinstance(value, list):
        return [_changed(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def _derived(value: str, how: str | None) -> str:
    if how is None:
        return value
    if how == "upper":
        return value.upper()
    if how == "ms":
        seconds, _, fraction = value.removesuffix("Z").partition(".")
        moment = datetime.fromisoformat(f"{seconds}+00:00")
        return str(int(moment.timestamp()) * 1000 + int(f"{fraction}000"[:3]))
    return value[: int(how)]
