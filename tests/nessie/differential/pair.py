"""A pair of servers: each request goes to both, and their answers are compared."""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from tests.nessie.differential.comparison import Answer, Comparison, lacks_allow, says_java
from tests.nessie.differential.known_differences import (
    BAD_FILTER,
    JAVA_TEXT,
    NO_ALLOW,
    Known,
    decided,
    fault,
    nothing_filtered,
)
from tests.nessie.differential.requests import Connection, Request
from tests.nessie.differential.symbols import MORAG, NESSIE, Json, Symbols

_TAIL: Final = 10


class Difference(Struct, frozen=True):
    request: Request
    where: list[str]
    nessie: Answer
    morag: Answer
    before: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(
            [
                f"request: {self.request}",
                *(f"  differs in {path}" for path in self.where[:6]),
                f"nessie: {_shown(self.nessie)}",
                f"morag:    {_shown(self.morag)}",
            ]
        )


class Reply(Struct, frozen=True):
    """The common answer, with symbols for generated values. `same` if both answers agree."""

    status: int
    json: Json
    same: bool

    @property
    def ok(self) -> bool:
        return self.same and 200 <= self.status < 300


class Diverged(Exception):
    """One server did what the other refused, so that later answers would differ, too."""


class Pair:
    """With `twins`, both servers are Nessie and have the same faults."""

    def __init__(self, nessie: str, morag: str, *, twins: bool = False) -> None:
        self.twins = twins
        self.symbols = Symbols()
        self.known = Known()
        self.differences: list[Difference] = []
        self.requests = 0
        self.tail: deque[str] = deque(maxlen=_TAIL)
        self._sides = Connection(nessie, NESSIE), Connection(morag, MORAG)
        self._comparison = Comparison(self.symbols)
        self._last = Answer(0, {}, b"")

    def close(self) -> None:
        for side in self._sides:
            side.close()

    def ask(self, request: Request) -> Reply:
        self.requests += 1
        nessie, morag = (side.send(request, self.symbols) for side in self._sides)
        where = self._differences(request, nessie, morag)
        if where:
            self.differences.append(Difference(request, where, nessie, morag, tuple(self.tail)))
        self.tail.append(f"{nessie.status} {morag.status} {request}")
        if request.writes and ((where and _done(nessie) != _done(morag)) or _is_broken(nessie)):
            raise Diverged(str(request))
        return Reply(nessie.status, self.symbols.symbolic(nessie.json, NESSIE), not where)

    def ask_one(self, request: Request, side: int = MORAG) -> Reply:
        """Ask only one server: Morag where Nessie has a fault, or Nessie."""
        self._last = answer = self._sides[side].send(request, self.symbols)
        self.tail.append(f"--- {answer.status} {request}")
        return Reply(answer.status, self.symbols.symbolic(answer.json, side), same=True)

    def blame(self, request: Request, why: str) -> None:
        """Record the last answer of `ask_one` as wrong."""
        answers = (Answer(0, {}, b"not asked"), self._last)
        self.differences.append(Difference(request, [why], *answers, tuple(self.tail)))

    def _differences(self, request: Request, nessie: Answer, morag: Answer) -> list[str]:
        if what := fault(nessie, morag):
            self.known.count(what)
            return []
        if nothing_filtered(request, nessie, morag):
            self.known.count(BAD_FILTER)
            return []
        where = self._comparison.differences(nessie, morag)
        if where and not self.twins:
            what = decided(request, nessie, morag, where)
            if what is not None:
                self.known.count(what)
                return []
        if lacks_allow(nessie, morag):
            self.known.count(NO_ALLOW)
        body = nessie.json
        if not where and isinstance(body, dict) and "errorCode" in body and says_java(body):
            self.known.count(JAVA_TEXT)
        return where


def _done(answer: Answer) -> bool:
    return 200 <= answer.status < 300


def _is_broken(answer: Answer) -> bool:
    """Whether Nessie stored what it cannot read; it answers with an empty message then."""
    body = answer.json
    return answer.status == 400 and isinstance(body, dict) and body.get("message") == ""


def _shown(answer: Answer) -> str:
    body = answer.body.decode(errors="replace")
    short = " ".join(body.split())
    kind = answer.headers.get("content-type")
    return f"{answer.status} ({kind}) {short[:1500]}"
