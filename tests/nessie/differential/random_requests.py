"""Random parts of requests, and sending them: with headers, mistakes and following pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from msgspec.structs import replace

from tests.nessie.differential.mistakes import with_a_mistake
from tests.nessie.differential.requests import Request, path
from tests.nessie.differential.vocabulary import (
    DEFAULT,
    MOMENTS,
    NUMBERS,
    PEOPLE,
    WRONG_HASHES,
    WRONG_LEAVES,
    WRONG_NAMES,
    WRONG_TOKENS,
    encoded,
    some_key,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random
    from typing import TypeVar

    from tests.nessie.differential.pair import Pair, Reply
    from tests.nessie.differential.symbols import Json
    from tests.nessie.differential.vocabulary import Key
    from tests.nessie.differential.world import World

    T = TypeVar("T")

_PAGES: Final = 4
_SPECS: Final = ("1", "2", "2", "2", "2", "2.0", "1.9", "3", "x", "")


class RandomRequests:
    def __init__(self, pair: Pair, world: World, random: Random) -> None:
        self.pair = pair
        self.world = world
        self.random = random

    # Sending

    def ask(self, request: Request, *, spoil: float = 0.06) -> Reply:
        """Send the request with the usual headers, sometimes with a mistake in it."""
        request = replace(request, headers=(*self._headers(request), *request.headers))
        if self.chance(spoil):
            request = with_a_mistake(self.random, request)
        elif request.text is not None and self.chance(0.05):
            request = replace(request, zipped=True)
        reply = self.pair.ask(request)
        if request.writes and (reply.status < 300 or reply.status == 500):
            self.world.refresh()
        return reply

    def pages(self, request: Request, api: str) -> None:
        """Send the request, and follow the token to the next few pages."""
        token = "page-token" if api == "v2" else "pageToken"
        reply = self.ask(request)
        for _ in range(_PAGES):
            if not reply.ok or not isinstance(reply.json, dict) or not reply.json.get("token"):
                return
            others = [(name, value) for name, value in request.query if name != token]
            request = replace(request, query=(*others, (token, reply.json["token"])))
            self.world.tokens.append((request, reply.json["token"]))
            reply = self.pair.ask(request)

    def _headers(self, request: Request) -> list[tuple[str, str]]:
        headers = [("Accept", "application/json")]
        if self.chance(0.9):
            headers.append(("Nessie-Client-Spec", self.one(_SPECS)))
        if request.text is not None:
            headers.append(("Content-Type", "application/json"))
        return headers

    def commit_headers(self) -> tuple[tuple[str, str], ...]:
        if not self.chance(0.12):
            return ()
        headers = [
            ("Nessie-Commit-Message", self.one(["from a header", "", "a"])),
            ("Nessie-Commit-Authors", self.one(["h1", "h1, h2", "h1,h2 , h3", ""])),
            ("Nessie-Commit-SignedOffBy", self.one(["s1", "s1,s2"])),
            ("Nessie-Commit-Property-Foo", "bar"),
            ("nessie-commit-property-foo", "again"),
            ("Nessie-Commit-Property-Job", "j9"),
            *([("Nessie-Commit-Property-", "nameless")] if self.chance(0.1) else []),
        ]
        return tuple(self.random.sample(headers, self.random.randrange(1, 4)))

    # Choosing

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def one(self, of: Sequence[T]) -> T:
        return self.random.choice(of)

    def branch(self) -> str:
        """An existing branch, mostly; the default one more often than others."""
        if self.chance(0.03):
            return self.name()
        return DEFAULT if self.chance(0.3) else self.one(self.world.names("BRANCH"))

    def name(self) -> str:
        """The name of any reference, sometimes an invalid one."""
        if self.chance(0.05):
            return self.one(WRONG_NAMES)
        return self.one(list(self.world.references))

    def head(self, name: str) -> str:
        return self.world.head(name) if name in self.world.references else self.world.nothing

    def hash_on(self, name: str) -> str:
        """The head as a rule; else an older commit, or a hash that is wrong for this reference."""
        head = self.head(name)
        roll = self.random.random()
        if roll < 0.78:
            return head
        if roll < 0.9 and (log := self.world.log(head)):
            return self.one(log).hash
        if roll < 0.93:
            return self.world.nothing
        if roll < 0.96:
            return self.one(self.world.hashes)
        if roll < 0.97:
            return self.pair.symbols.upper(head)
        if roll < 0.98:
            return self.pair.symbols.part(head, self.one([8, 10, 63]))
        return self.one(WRONG_HASHES)

    def relative(self) -> str:
        roll = self.random.random()
        if roll < 0.6:
            return f"~{self.one([1, 1, 2, 3, 0, 100, ''])}"
        if roll < 0.8:
            return f"^{self.one([1, 1, 2, 3, 0])}"
        return f"*{self.one(MOMENTS)}"

    def spec(self) -> str:
        """A ref spec for reading, as a path of v2 has it."""
        name = "-" if self.chance(0.05) else self.name()
        roll = self.random.random()
        if roll < 0.55:
            return name
        if roll < 0.75:
            return f"{name}@{self.hash_on(name)}"
        if roll < 0.8:
            return f"@{self.hash_on(name)}"
        if roll < 0.92:
            return f"{name}{self.relative()}"
        if roll < 0.97:
            return f"{name}@{self.hash_on(name)}{self.relative()}"
        return self.one(["@", "@@", f"{name}@", f"{name}~1~1", f"{name}@x", "~1", f"@{name}"])

    def key(self, hash: str) -> Key:
        """An existing key, as a rule."""
        if self.chance(0.7) and (state := self.world.state(hash)):
            return self.one(list(state))
        return (self.one(WRONG_LEAVES),) if self.chance(0.05) else some_key(self.random)

    def encoded_key(self, name: str) -> str:
        return encoded(self.random, self.key(self.head(name)))

    # Paths and queries

    def path(self, *parts: str, api: str = "v2") -> str:
        made = path(*parts, api=api)
        if api == "v2" and self.chance(0.2):  # A path of v2 may have unquoted slashes in a name.
            made = made.replace("%2F", "/")
        return made.replace("@", quote("@")) if self.chance(0.2) else made

    def paging(self, api: str) -> list[tuple[str, str]]:
        most, token = ("max-records", "page-token") if api == "v2" else ("maxRecords", "pageToken")
        query = []
        if self.chance(0.4):
            query.append((most, str(self.random.randrange(1, 5))))
        elif self.chance(0.1):
            query.append((most, self.one(NUMBERS)))
        if self.chance(0.03):
            query.append((token, self.one(WRONG_TOKENS)))
        return query

    def maybe(self, part: float, name: str, of: Sequence[str]) -> list[tuple[str, str]]:
        return [(name, self.one(of))] if self.chance(part) else []

    def keyed(self, part: float, field: str, name: str) -> list[tuple[str, str]]:
        return [(field, self.encoded_key(name))] if self.chance(part) else []

    def person(self) -> str:
        return self.one(PEOPLE)


def key_json(key: Key) -> Json:
    return {"elements": list(key)}
