"""The two servers as one: what is asked is asked of both, and their answers are compared."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tests.original.differential.canonical import Answer, Comparison, lacks_allow, says_java
from tests.original.differential.known import (
    BAD_FILTER,
    JAVA_TEXT,
    NO_ALLOW,
    Known,
    decided,
    fault,
    nothing_filtered,
)
from tests.original.differential.requests import Connection, Request
from tests.original.differential.symbols import MORAG, ORIGINAL, Json, Symbols

if TYPE_CHECKING:
    from types import TracebackType

_TAIL: Final = 10


class Difference(Struct, frozen=True):
    request: Request
    where: list[str]
    original: Answer
    morag: Answer
    before: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(
            [
                f"request: {self.request}",
                *(f"  differs in {place}" for place in self.where[:6]),
                f"original: {_shown(self.original)}",
                f"morag:    {_shown(self.morag)}",
            ]
        )


class Reply(Struct, frozen=True):
    """What both said, with names for what each made up. `same` if they really agreed."""

    status: int
    json: Json
    same: bool

    @property
    def ok(self) -> bool:
        return self.same and 200 <= self.status < 300


class Diverged(Exception):
    """One did what the other refused: if nobody helps, all that comes will differ, too."""


class Pair:
    """With `twins`, both are the original, and share its faults."""

    def __init__(self, original: str, morag: str, *, twins: bool = False) -> None:
        self.twins = twins
        self.symbols = Symbols()
        self.known = Known()
        self.differences: list[Difference] = []
        self.asked = 0
        self.tail: deque[str] = deque(maxlen=_TAIL)
        self._sides = Connection(original, ORIGINAL), Connection(morag, MORAG)
        self._comparison = Comparison(self.symbols)
        self._last = Answer(0, {}, b"")

    def __enter__(self) -> Pair:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for side in self._sides:
            side.close()

    def ask(self, request: Request) -> Reply:
        self.asked += 1
        here, there = (side.send(request, self.symbols) for side in self._sides)
        where = self._differences(request, here, there)
        if where:
            self.differences.append(Difference(request, where, here, there, tuple(self.tail)))
        self.tail.append(f"{here.status} {there.status} {request}")
        if request.writes and ((where and _done(here) != _done(there)) or _is_broken(here)):
            raise Diverged(str(request))
        return Reply(here.status, self.symbols.symbolic(here.json, ORIGINAL), not where)

    def ask_one(self, request: Request, side: int = MORAG) -> Reply:
        """Ask Morag alone, for something that the original gets wrong, or the original alone."""
        self._last = answer = self._sides[side].send(request, self.symbols)
        self.tail.append(f"--- {answer.status} {request}")
        return Reply(answer.status, self.symbols.symbolic(answer.json, side), same=True)

    def blame(self, request: Request, why: str) -> None:
        """Note that the last answer, which one gave alone, is wrong."""
        answers = (Answer(0, {}, b"was not asked"), self._last)
        self.differences.append(Difference(request, [why], *answers, tuple(self.tail)))

    def _differences(self, request: Request, here: Answer, there: Answer) -> list[str]:
        if what := fault(here, there):
            self.known.count(what)
            return []
        if nothing_filtered(request, here, there):
            self.known.count(BAD_FILTER)
            return []
        where = self._comparison.differences(here, there)
        if where and not self.twins:
            what = decided(request, here, there, where)
            if what is not None:
                self.known.count(what)
                return []
        if lacks_allow(here, there):
            self.known.count(NO_ALLOW)
        body = here.json
        if not where and isinstance(body, dict) and "errorCode" in body and says_java(body):
            self.known.count(JAVA_TEXT)
        return where


def _done(answer: Answer) -> bool:
    return 200 <= answer.status < 300


def _is_broken(answer: Answer) -> bool:
    """The original has just stored what it will not read, and says nothing about it."""
    body = answer.json
    return answer.status == 400 and isinstance(body, dict) and body.get("message") == ""


def _shown(answer: Answer) -> str:
    body = answer.body.decode(errors="replace")
    short = " ".join(body.split())
    kind = answer.headers.get("content-type")
    return f"{answer.status} ({kind}) {short[:1500]}"
