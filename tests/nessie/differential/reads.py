"""Random reads of everything that either API shows."""

from __future__ import annotations

from typing import Final

from tests.nessie.differential.random_requests import RandomRequests, key_json
from tests.nessie.differential.requests import Request
from tests.nessie.differential.vocabulary import (
    BOOLEANS,
    COMMON_FILTERS,
    DIFF_FILTERS,
    ENTRY_FILTERS,
    FETCHES,
    HISTORY_FILTERS,
    NOWHERE,
    NUMBERS,
    REFERENCE_FILTERS,
    WRONG_FILTERS,
    WRONG_HASHES,
    WRONG_TOKENS,
    encoded,
    some_key,
)

_CONFIG_TYPES: Final = ("GARBAGE_COLLECTOR", "GARBAGE_COLLECTOR", "UNKNOWN_TYPE", "")


class Reads(RandomRequests):
    # v2

    def references(self) -> None:
        query = [*self.paging("v2"), *self.fetch(), *self.filter(0.4, REFERENCE_FILTERS)]
        self.pages(Request("GET", self.path("trees"), tuple(query)), "v2")

    def reference(self) -> None:
        name = self.spec() if self.chance(0.15) else self.name()
        self.ask(Request("GET", self.path("trees", name), tuple(self.fetch())))

    def entries(self) -> None:
        name = self.name()
        place = name if self.chance(0.5) else self.spec()
        query = [*self.paging("v2"), *self.range(name), *self.filter(0.35, ENTRY_FILTERS)]
        query += self.maybe(0.4, "content", BOOLEANS)
        self.pages(Request("GET", self.path("trees", place, "entries"), tuple(query)), "v2")

    def history(self) -> None:
        query = [*self.paging("v2"), *self.fetch(), *self.filter(0.35, HISTORY_FILTERS)]
        if self.chance(0.15):
            limit = self.hash_on(self.name())
            query.append(("limit-hash", limit + (self.relative() if self.chance(0.3) else "")))
        self.pages(Request("GET", self.path("trees", self.spec(), "history"), tuple(query)), "v2")

    def diff(self) -> None:
        name = self.name()
        query = [*self.paging("v2"), *self.range(name), *self.filter(0.3, DIFF_FILTERS)]
        place = self.path("trees", self.spec(), "diff", name if self.chance(0.5) else self.spec())
        self.pages(Request("GET", place, tuple(query)), "v2")

    def content(self) -> None:
        name = self.name()
        place = name if self.chance(0.5) else self.spec()
        query = [*self.maybe(0.1, "with-doc", BOOLEANS), *self.maybe(0.1, "for-write", BOOLEANS)]
        path = self.path("trees", place, "contents", self.encoded_key(name))
        self.ask(Request("GET", path, tuple(query)))

    def contents(self) -> None:
        name = self.name()
        place = self.path("trees", name if self.chance(0.5) else self.spec(), "contents")
        query = [*self.maybe(0.1, "with-doc", BOOLEANS), *self.maybe(0.1, "for-write", BOOLEANS)]
        count = self.random.randrange(5)
        if self.chance(0.5):
            query += [("key", self.encoded_key(name)) for _ in range(count)]
            self.ask(Request("GET", place, tuple(query)))
        else:
            keys = [key_json(self.key(self.head(name))) for _ in range(count)]
            request = Request("POST", place, tuple(query))
            self.ask(request.with_json({"requestedKeys": keys}))

    def recent_changes(self) -> None:
        if self.world.healed:
            return
        name = self.spec() if self.chance(0.1) else self.name()
        query = self.maybe(0.5, "scan-commits", [*NUMBERS, "2", "10", "100"])
        self.ask(Request("GET", self.path("trees", name, "recent-changes"), tuple(query)))

    def config(self) -> None:
        if self.chance(0.3):
            self.ask(Request("GET", self.path("config", api=self.one(["v1", "v2"]))))
        else:
            query = [("type", self.one(_CONFIG_TYPES)) for _ in range(self.random.randrange(3))]
            self.ask(Request("GET", self.path("config", "repository"), tuple(query)))

    def mistakes(self) -> None:
        """A listing with several mistakes. Both servers must report the same one first."""
        what = self.one(["entries", "diff", "history", "entries v1", "log v1", "diff v1"])
        query = self.maybe(0.6, "filter", WRONG_FILTERS)
        api = "v1" if "v1" in what else "v2"
        query += self.maybe(0.3, "pageToken" if api == "v1" else "page-token", WRONG_TOKENS)
        places = [self.missing() for _ in range(2)]
        if what in ("entries", "diff"):
            query += self.range(self.name(), 0.4)
        if what == "diff":
            path = self.path("trees", places[0], "diff", places[1])
        elif what == "diff v1":
            query = []
            ends = [place.replace("@", "*").replace("~", "*~") for place in places]
            path = self.path("diffs", "...".join(ends), api=api)
        elif api == "v2":
            if what == "history":
                query += self.maybe(0.5, "limit-hash", (*WRONG_HASHES, f"{NOWHERE}~1", "~0"))
            path = self.path("trees", places[0], what)
        else:
            at = {"entries v1": "hashOnRef", "log v1": "endHash"}[what]
            query += self.maybe(0.6, at, (*WRONG_HASHES, f"{NOWHERE}~1"))
            if what == "log v1":
                query += self.maybe(0.5, "startHash", WRONG_HASHES)
            path = self.path("trees", "tree", self.detachable(), what.split()[0], api=api)
        self.ask(Request("GET", path, tuple(query)))

    def reversed_bounds(self) -> None:
        """A range of existing or recently deleted keys whose lower bound is the larger one."""
        name = self.one(self.world.names("BRANCH"))
        head = self.world.head(name)
        keys = {*self.world.state(head), some_key(self.random), some_key(self.random)}
        if (log := self.world.log(head)) and log[0].parents:
            keys |= {*self.world.state(log[0].parents[0])}
        if len(keys) < 2:
            return
        low, high = sorted(self.random.sample(sorted(keys), 2))
        query = [("min-key", encoded(self.random, high)), ("max-key", encoded(self.random, low))]
        if self.chance(0.2):
            query[self.random.randrange(2)] = ("key", encoded(self.random, self.one([low, high])))
        listing = "entries" if self.chance(0.6) else f"diff/{self.one(list(self.world.references))}"
        self.ask(Request("GET", self.path("trees", name, *listing.split("/", 1)), tuple(query)))

    def old_token(self) -> None:
        """Continue from an old page."""
        if self.world.tokens:
            request, _ = self.one(self.world.tokens)
            self.ask(request)

    # v1

    def references_v1(self) -> None:
        if self.chance(0.2):
            self.ask(Request("GET", self.path("trees", "tree", api="v1")))
            return
        query = [*self.paging("v1"), *self.fetch(), *self.filter(0.4, REFERENCE_FILTERS)]
        self.pages(Request("GET", self.path("trees", api="v1"), tuple(query)), "v1")

    def reference_v1(self) -> None:
        name = self.spec() if self.chance(0.1) else self.name()
        self.ask(Request("GET", self.path("trees", "tree", name, api="v1"), tuple(self.fetch())))

    def entries_v1(self) -> None:
        name = self.detachable()
        query = [*self.paging("v1"), *self.at(name), *self.filter(0.3, ENTRY_FILTERS)]
        query += self.maybe(0.3, "namespaceDepth", ["1", "2", "3", "4", *NUMBERS])
        path = self.path("trees", "tree", name, "entries", api="v1")
        self.pages(Request("GET", path, tuple(query)), "v1")

    def log_v1(self) -> None:
        name = self.detachable()
        query = [*self.paging("v1"), *self.fetch(), *self.filter(0.3, HISTORY_FILTERS)]
        query += [(end, self.hash_on(name)) for end in ("startHash", "endHash") if self.chance(0.2)]
        path = self.path("trees", "tree", name, "log", api="v1")
        self.pages(Request("GET", path, tuple(query)), "v1")

    def content_v1(self) -> None:
        name = self.detachable()
        query = [*([("ref", name)] if self.chance(0.9) else []), *self.at(name)]
        path = self.path("contents", self.encoded_key(name), api="v1")
        self.ask(Request("GET", path, tuple(query)))

    def contents_v1(self) -> None:
        name = self.detachable()
        query = [*([("ref", name)] if self.chance(0.9) else []), *self.at(name)]
        keys = [key_json(self.key(self.head(name))) for _ in range(self.random.randrange(4))]
        request = Request("POST", self.path("contents", api="v1"), tuple(query))
        self.ask(request.with_json({"requestedKeys": keys}))

    def diff_v1(self) -> None:
        ends = [self.name() for _ in range(2)]
        ends = [f"{name}*{self.hash_on(name)}" if self.chance(0.3) else name for name in ends]
        self.ask(Request("GET", self.path("diffs", "...".join(ends), api="v1")))

    def namespaces_v1(self) -> None:
        name = self.name()
        query = [*self.keyed(0.4, "name", name), *self.at(name)]
        self.ask(Request("GET", self.path("namespaces", name, api="v1"), tuple(query)))

    def namespace_v1(self) -> None:
        name = self.name()
        path = self.path("namespaces", "namespace", name, self.encoded_key(name), api="v1")
        self.ask(Request("GET", path, tuple(self.at(name))))

    # Parts

    def missing(self) -> str:
        """A ref spec of a missing commit, as a rule."""
        name = self.name()
        places = [
            f"{name}@{NOWHERE}",
            f"@{NOWHERE}",
            f"{name}@{NOWHERE}~1",
            "nope",
            f"nope@{NOWHERE}",
        ]
        places += [f"{name}*2001-13-01T00:00:00.000Z", f"{name}@cafebabe1", f"{name}~0", name]
        return self.one(places)

    def detachable(self) -> str:
        return "DETACHED" if self.chance(0.04) else self.name()

    def at(self, name: str) -> list[tuple[str, str]]:
        return [("hashOnRef", self.hash_on(name))] if self.chance(0.3) else []

    def fetch(self) -> list[tuple[str, str]]:
        if self.chance(0.4):
            return [("fetch", "ALL")]
        return self.maybe(0.1, "fetch", FETCHES)

    def filter(self, part: float, fitting: tuple[str, ...]) -> list[tuple[str, str]]:
        if not self.chance(part):
            return []
        return [("filter", self.one(COMMON_FILTERS if self.chance(0.15) else fitting))]

    def range(self, name: str, part: float = 0.1) -> list[tuple[str, str]]:
        query = [*self.keyed(part, "min-key", name), *self.keyed(part, "max-key", name)]
        query += self.keyed(part, "prefix-key", name)
        while self.chance(0.15):
            query += self.keyed(1, "key", name)
        return query
