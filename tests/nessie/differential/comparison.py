"""Comparison of two answers in everything but the values that each server generates."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tests.nessie.differential.symbols import (
    CONTENT_ID,
    FULL_HASH,
    HASH,
    MORAG,
    NESSIE,
    TOKEN,
    VOLATILE,
)
from tests.wire.transcripts import copied

if TYPE_CHECKING:
    from tests.nessie.differential.symbols import Json, Symbols

# Nessie keeps these in hash tables.
_UNORDERED: Final = frozenset({"addedContents", "details", "contents", "namespaces", "conflicts"})
SEVERAL_CONFLICTS: Final = (
    "There are multiple conflicts that prevent committing the provided operations: "
)
_MODE: Final = re.compile(r"(?<=^MergeKeyBehavior\.resolvedContent ).*")
_NAMESPACES: Final = re.compile(
    r"(?<=prevent committing the provided operations: )(?:namespace '|expecting the key).*(?=\.)"
)
_UNUSED_KEYS: Final = re.compile(r"(?<=The following keys were not used: \[).*(?=\])")
_HEADERS: Final = ("content-type", "allow")  # Morag sends more, for instance ETag.
_VIOLATION: Final = re.compile(r", (?=[a-z]\w+\.\w)")
_A_DAY: Final = timedelta(days=1)

# Traces of a message of a Java library, whose wording cannot be reproduced.
_JAVA: Final = (
    "com.fasterxml",
    "org.projectnessie",
    "java.",
    "Unrecognized field",
    "Unrecognized token",
    "Unexpected character",
    "Unexpected end-of-input",
    "Cannot construct instance",
    "Cannot deserialize",
    "Cannot coerce",
    "Could not resolve",
    "missing type id",
    "through reference chain",
    " at [Source",
    "No type registered",
    "No enum constant",
    "Illegal base64",
    "Input byte",
    "Last unit",
    "Text '",
    "Invalid UUID string",
)


class Answer(Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        """The decoded body; the text of a body that is not JSON."""
        text = self.body.decode(errors="replace")
        try:
            return json.loads(text) if text else None
        except ValueError:
            return text


class Comparison:
    """Compares answers one after the other and remembers which generated values correspond.

    At its first appearance, a hash or an id must be new on both sides; from then on the two
    correspond. The time of a commit belongs to that commit. A token is compared by its effect: it
    gets a symbol, and later requests send it back.
    """

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols
        self._times: dict[str, tuple[str, str]] = {}
        self._commits: tuple[dict[str, set[str]], dict[str, set[str]]] = ({}, {})
        self._found: list[str] = []
        self._instants: list[tuple[str, str, str]] = []

    def differences(self, nessie: Answer, morag: Answer) -> list[str]:
        """The paths at which the answers disagree, with both values."""
        self._found, self._instants = [], []
        if nessie.status != morag.status:
            self._differ("status", nessie.status, morag.status)
        for name in _HEADERS:
            expected, actual = (_header(answer, name) for answer in (nessie, morag))
            if expected != actual and not lacks_allow(nessie, morag):
                self._differ(name, expected, actual)
        expected, actual = nessie.json, morag.json
        if isinstance(expected, dict) and isinstance(actual, dict):
            self._sort(expected, actual)
            if expected.get("errorDetails") and actual.get("errorDetails"):
                self._sort(expected["errorDetails"], actual["errorDetails"])
            if expected.get("errorCode") is not None:
                if says_java(expected) and actual.get("message"):
                    expected["message"], actual["message"] = _copied(expected), _copied(actual)
                expected["message"], actual["message"] = (
                    _sorted_message(expected),
                    _sorted_message(actual),
                )
        self._values("", expected, actual)
        self._check_instants()
        return self._found

    def _differ(self, path: str, expected: object, actual: object) -> None:
        self._found.append(f"{path or '/'}: {_short(expected)} != {_short(actual)}")

    def _values(self, path: str, expected: Json, actual: Json) -> None:
        if type(expected) is not type(actual):
            self._differ(path, expected, actual)
        elif isinstance(expected, dict):
            self._dicts(path, expected, actual)
        elif isinstance(expected, list):
            if len(expected) != len(actual):
                self._differ(path, expected, actual)
            for i, (one, other) in enumerate(zip(expected, actual, strict=False)):
                self._values(f"{path}/{i}", one, other)
        elif isinstance(expected, str):
            self._texts(path, expected, actual)
        elif expected != actual:
            self._differ(path, expected, actual)

    def _dicts(self, path: str, expected: Json, actual: Json) -> None:
        for name in dict.fromkeys([*expected, *actual]):
            if name not in expected or name not in actual:
                nothing = "no such field"
                self._differ(
                    f"{path}/{name}", expected.get(name, nothing), actual.get(name, nothing)
                )
            elif (
                name == "token"
                and isinstance(expected[name], str)
                and isinstance(actual[name], str)
            ):
                if self._symbols.name(NESSIE, expected[name]) is None:
                    self._symbols.bind(TOKEN, expected[name], actual[name])
            else:
                self._values(f"{path}/{name}", expected[name], actual[name])
        if "hash" in expected and "commitTime" in expected:
            self._learn_time(path, expected, actual)

    def _texts(self, path: str, expected: str, actual: str) -> None:
        if expected == actual and not VOLATILE.search(expected):
            return
        one, other = _pieces(expected), _pieces(actual)
        if [kind or text for kind, text in one] != [kind or text for kind, text in other]:
            self._differ(path, expected, actual)
            return
        for (kind, a), (_, b) in zip(one, other, strict=True):
            if kind == "T":
                self._instants.append((path, a, b))
            elif kind is not None and not self._bound(kind, a, b):
                self._differ(path, f"{expected} {self._symbols.name(NESSIE, a) or ''}", actual)

    def _bound(self, kind: str, expected: str, actual: str) -> bool:
        one, other = self._symbols.name(NESSIE, expected), self._symbols.name(MORAG, actual)
        if one is not None or other is not None:
            return one == other
        if expected == actual:
            return True
        if kind == HASH and not len(expected) == len(actual) == FULL_HASH:
            return False
        self._symbols.bind(HASH if kind == HASH else CONTENT_ID, expected, actual)
        return True

    def _learn_time(self, path: str, expected: Json, actual: Json) -> None:
        commit = self._symbols.name(NESSIE, str(expected["hash"]))
        times = str(expected["commitTime"]), str(actual.get("commitTime"))
        if commit is None:
            return
        if self._times.setdefault(commit, times) != times:
            self._differ(f"{path}/commitTime of {commit} was {self._times[commit]}", *times)
        for side in (NESSIE, MORAG):
            self._commits[side].setdefault(times[side], set()).add(commit)

    def _check_instants(self) -> None:
        """Each pair must be equal, belong to the same commit, or be recent on both sides."""
        for path, expected, actual in self._instants:
            one, other = self._commits[NESSIE].get(expected), self._commits[MORAG].get(actual)
            if expected == actual or (one and other and one & other):
                continue
            if one or other or not (_recent(expected) and _recent(actual)):
                self._differ(path, f"{expected} of {one}", f"{actual} of {other}")

    def _sort(self, expected: Json, actual: Json) -> None:
        for name in _UNORDERED & expected.keys() & actual.keys():
            expected[name] = self._sorted(expected[name], NESSIE)
            actual[name] = self._sorted(actual[name], MORAG)

    def _sorted(self, items: Json, side: int) -> Json:
        if not isinstance(items, list):
            return items
        named = [(self._symbols.symbolic(item, side), item) for item in items]
        return [item for _, item in sorted(named, key=lambda pair: _masked(pair[0]))]


def lacks_allow(nessie: Answer, morag: Answer) -> bool:
    allow = ("allow" in nessie.headers, "allow" in morag.headers)
    return nessie.status == morag.status == 405 and allow == (False, True)


def says_java(body: Json) -> bool:
    return any(hint in str(body.get("message")) for hint in _JAVA)


def _copied(error: Json) -> str:
    return copied(str(error["message"]))


def _header(answer: Answer, name: str) -> str | None:
    value = answer.headers.get(name)
    return value if value is None or name != "allow" else ", ".join(sorted(value.split(", ")))


def _sorted_message(error: Json) -> Json:
    """The message with violations, unused keys and conflicting namespaces in order.

    Nessie reports them in any order, and any one of several wrong merge modes.
    """
    message = error.get("message")
    if not isinstance(message, str):
        return message
    for unordered in (_UNUSED_KEYS, _NAMESPACES):
        message = unordered.sub(lambda items: ", ".join(sorted(items[0].split(", "))), message)
    return ", ".join(sorted(split_violations(_MODE.sub("…", message))))


def split_violations(message: str) -> list[str]:
    return _VIOLATION.split(message)


def _pieces(text: str) -> list[tuple[str | None, str]]:
    """The parts of a text; generated values stand apart, with their kind."""
    pieces: list[tuple[str | None, str]] = []
    end = 0
    for match in VOLATILE.finditer(text):
        pieces += [(None, text[end : match.start()]), (match.lastgroup, match[0])]
        end = match.end()
    return [*pieces, (None, text[end:])]


def _masked(value: Json) -> str:
    return VOLATILE.sub("*", json.dumps(value, sort_keys=True))


def _recent(instant: str) -> bool:
    try:
        return abs(datetime.now(UTC) - datetime.fromisoformat(instant)) < _A_DAY
    except ValueError:  # It only looks like an instant.
        return False


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    return text if len(text) <= 400 else f"{text[:400]}… ({len(text)} characters)"
