"""When two answers are the same: all but what each server has to make up for itself."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tests.original.differential.symbols import (
    CONTENT_ID,
    FULL_HASH,
    HASH,
    MORAG,
    ORIGINAL,
    TOKEN,
    VOLATILE,
)
from tests.wire.transcripts import copied

if TYPE_CHECKING:
    from tests.original.differential.symbols import Json, Symbols

# The original keeps these in hash tables.
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

# Traces of a text that a Java library has made. Nobody can say the same thing in the same words.
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
        """What the body says; a body that is not JSON is given as its text."""
        text = self.body.decode(errors="replace")
        try:
            return json.loads(text) if text else None
        except ValueError:
            return text


class Comparison:
    """Compares answers one after the other and remembers what was bound to what.

    The first time that a hash or an id shows up it must be new on both sides; from then on the two
    belong together. The time of a commit belongs to that commit. A token is compared by its effect:
    it gets a name, to be sent back.
    """

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols
        self._times: dict[str, tuple[str, str]] = {}
        self._commits: tuple[dict[str, set[str]], dict[str, set[str]]] = ({}, {})
        self._found: list[str] = []
        self._instants: list[tuple[str, str, str]] = []

    def differences(self, original: Answer, morag: Answer) -> list[str]:
        """Where the two disagree, with both versions."""
        self._found, self._instants = [], []
        if original.status != morag.status:
            self._differ("status", original.status, morag.status)
        for name in _HEADERS:
            here, there = (_header(answer, name) for answer in (original, morag))
            if here != there and not lacks_allow(original, morag):
                self._differ(name, here, there)
        here, there = original.json, morag.json
        if isinstance(here, dict) and isinstance(there, dict):
            self._sort(here, there)
            if here.get("errorDetails") and there.get("errorDetails"):
                self._sort(here["errorDetails"], there["errorDetails"])
            if here.get("errorCode") is not None:
                if says_java(here) and there.get("message"):
                    here["message"], there["message"] = _copied(here), _copied(there)
                here["message"], there["message"] = _said(here), _said(there)
        self._values("", here, there)
        self._check_instants()
        return self._found

    def _differ(self, path: str, here: object, there: object) -> None:
        self._found.append(f"{path or '/'}: {_short(here)} != {_short(there)}")

    def _values(self, path: str, here: Json, there: Json) -> None:
        if type(here) is not type(there):
            self._differ(path, here, there)
        elif isinstance(here, dict):
            self._dicts(path, here, there)
        elif isinstance(here, list):
            if len(here) != len(there):
                self._differ(path, here, there)
            for i, (one, other) in enumerate(zip(here, there, strict=False)):
                self._values(f"{path}/{i}", one, other)
        elif isinstance(here, str):
            self._texts(path, here, there)
        elif here != there:
            self._differ(path, here, there)

    def _dicts(self, path: str, here: Json, there: Json) -> None:
        for name in dict.fromkeys([*here, *there]):
            if name not in here or name not in there:
                nothing = "nothing at all"
                self._differ(f"{path}/{name}", here.get(name, nothing), there.get(name, nothing))
            elif name == "token" and isinstance(here[name], str) and isinstance(there[name], str):
                if self._symbols.name(ORIGINAL, here[name]) is None:
                    self._symbols.bind(TOKEN, here[name], there[name])
            else:
                self._values(f"{path}/{name}", here[name], there[name])
        if "hash" in here and "commitTime" in here:
            self._learn_time(path, here, there)

    def _texts(self, path: str, here: str, there: str) -> None:
        if here == there and not VOLATILE.search(here):
            return
        one, other = _pieces(here), _pieces(there)
        if [kind or text for kind, text in one] != [kind or text for kind, text in other]:
            self._differ(path, here, there)
            return
        for (kind, a), (_, b) in zip(one, other, strict=True):
            if kind == "T":
                self._instants.append((path, a, b))
            elif kind is not None and not self._bound(kind, a, b):
                self._differ(path, f"{here} {self._symbols.name(ORIGINAL, a) or ''}", there)

    def _bound(self, kind: str, here: str, there: str) -> bool:
        one, other = self._symbols.name(ORIGINAL, here), self._symbols.name(MORAG, there)
        if one is not None or other is not None:
            return one == other
        if here == there:
            return True
        if kind == HASH and not len(here) == len(there) == FULL_HASH:
            return False
        self._symbols.bind(HASH if kind == HASH else CONTENT_ID, here, there)
        return True

    def _learn_time(self, path: str, here: Json, there: Json) -> None:
        commit = self._symbols.name(ORIGINAL, str(here["hash"]))
        times = str(here["commitTime"]), str(there.get("commitTime"))
        if commit is None:
            return
        if self._times.setdefault(commit, times) != times:
            self._differ(f"{path}/commitTime of {commit} was {self._times[commit]}", *times)
        for side in (ORIGINAL, MORAG):
            self._commits[side].setdefault(times[side], set()).add(commit)

    def _check_instants(self) -> None:
        """Equal, or the time of the same commit, or both just now."""
        for path, here, there in self._instants:
            one, other = self._commits[ORIGINAL].get(here), self._commits[MORAG].get(there)
            if here == there or (one and other and one & other):
                continue
            if one or other or not (_recent(here) and _recent(there)):
                self._differ(path, f"{here} of {one}", f"{there} of {other}")

    def _sort(self, here: Json, there: Json) -> None:
        for name in _UNORDERED & here.keys() & there.keys():
            here[name] = self._sorted(here[name], ORIGINAL)
            there[name] = self._sorted(there[name], MORAG)

    def _sorted(self, items: Json, side: int) -> Json:
        if not isinstance(items, list):
            return items
        named = [(self._symbols.symbolic(item, side), item) for item in items]
        return [item for _, item in sorted(named, key=lambda pair: _masked(pair[0]))]


def lacks_allow(original: Answer, morag: Answer) -> bool:
    allow = ("allow" in original.headers, "allow" in morag.headers)
    return original.status == morag.status == 405 and allow == (False, True)


def says_java(body: Json) -> bool:
    return any(hint in str(body.get("message")) for hint in _JAVA)


def _copied(error: Json) -> str:
    return copied(str(error["message"]))


def _header(answer: Answer, name: str) -> str | None:
    value = answer.headers.get(name)
    return value if value is None or name != "allow" else ", ".join(sorted(value.split(", ")))


def _said(error: Json) -> Json:
    """Several violations come in any order; so do keys not used and namespaces in conflict.

    Of several merge modes that are wrong, any one is told.
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
    """Text in which what may differ stands apart, with its kind."""
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
    except ValueError:  # It only looks like one.
        return False


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    return text if len(text) <= 400 else f"{text[:400]}… ({len(text)} characters)"
