"""What the generator knows of both servers: references, states and logs, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tests.original.differential.pair import Diverged
from tests.original.differential.requests import Request, path
from tests.original.differential.symbols import HASH, MORAG, ORIGINAL

if TYPE_CHECKING:
    from tests.original.differential.pair import Pair
    from tests.original.differential.symbols import Json
    from tests.original.differential.vocabulary import Key

_LOGGED: Final = 30


class Logged(Struct, frozen=True):
    hash: str
    parents: list[str]


class World:
    """Everything here was said by both servers, in answers that were compared."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._states: dict[str, dict[Key, Json]] = {}
        self._logs: dict[str, list[Logged]] = {}
        self._homes: dict[str, set[Key]] = {}
        self._known_parents: dict[str, list[str]] = {}
        self._before: dict[str, frozenset[str]] = {}
        self.references: dict[str, Json] = {}
        self.hashes: list[str] = []
        self.tokens: list[tuple[Request, str]] = []
        self.healed = False
        config = pair.ask(Request("GET", path("config"))).json
        nothing = config["noAncestorHash"]
        self.nothing = pair.symbols.bind(HASH, nothing, nothing)
        self.refresh()

    def refresh(self) -> None:
        """Read all references; if they are not the same, all else will differ, too."""
        found = self._pair.ask(Request("GET", path("trees")))
        if not found.same:
            raise Diverged("the references are not the same")
        self.references = {ref["name"]: ref for ref in found.json["references"]}
        known = {*self.hashes}
        heads = dict.fromkeys(ref["hash"] for ref in self.references.values())
        self.hashes += [head for head in heads if head not in known]

    def heal(self) -> None:
        """Put all references back to where both had them, so that one difference is not the last.

        It leaves traces in the recent changes of a reference, which say no more after that.
        """
        self.healed = True
        for side in (ORIGINAL, MORAG):
            listed = self._pair.ask_one(Request("GET", path("trees")), side).json["references"]
            there = {ref["name"]: ref for ref in listed}
            for name, ref in {**there, **self.references}.items():
                if there.get(name) != self.references.get(name):
                    self._pair.ask_one(self._back(name, there.get(name), ref), side)
        self.refresh()

    def _back(self, name: str, there: Json, ref: Json) -> Request:
        target = {"type": "DETACHED", "hash": ref["hash"]}
        if there is None:
            query = (("name", name), ("type", ref["type"]))
            return Request("POST", path("trees"), query).with_json(target)
        place = path("trees", f"{name}@{there['hash']}")
        if name in self.references:
            return Request("PUT", place).with_json(target)
        return Request("DELETE", place)

    def names(self, kind: str) -> list[str]:
        return [name for name, ref in self.references.items() if ref["type"] == kind]

    def head(self, name: str) -> str:
        return str(self.references[name]["hash"])

    def state(self, hash: str) -> dict[Key, Json]:
        """All content at a commit."""
        if hash not in self._states:
            asked = Request("GET", path("trees", f"@{hash}", "entries"), (("content", "true"),))
            entries = self._items(asked, "entries")
            self._states[hash] = {tuple(e["name"]["elements"]): e["content"] for e in entries}
            for key, content in self._states[hash].items():
                self._homes.setdefault(content["id"], set()).add(key)
        return self._states[hash]

    def log(self, hash: str) -> list[Logged]:
        """The newest commits of a log, newest first."""
        if hash not in self._logs:
            query = (("max-records", str(_LOGGED)),)
            asked = Request("GET", path("trees", f"@{hash}", "history"), query)
            metas = [entry["commitMeta"] for entry in self._items(asked, "logEntries")]
            self._logs[hash] = [Logged(m["hash"], m["parentCommitHashes"]) for m in metas]
        return self._logs[hash]

    def _items(self, asked: Request, items: str) -> list[Json]:
        reply = self._pair.ask(asked)
        if not reply.ok:
            raise Diverged(f"what the generator goes by is not to be had: {reply.status} {asked}")
        found: list[Json] = reply.json[items]
        return found

    def commit(self, spec: str) -> Logged | None:
        """The commit that a hash stands for, perhaps with a relative part, if there is one.

        It is `nothing` for the place before the first commit.
        """
        query = (("max-records", "1"),)
        reply = self._pair.ask(Request("GET", path("trees", f"@{spec}", "history"), query))
        if not reply.ok:
            return None
        for entry in reply.json["logEntries"]:
            meta = entry["commitMeta"]
            return Logged(meta["hash"], meta["parentCommitHashes"])
        return Logged(self.nothing, [])

    def renames(self, before: str, after: str) -> dict[Key, str | None]:
        """The keys that take part in renames, with the content ids that they have afterwards."""
        later = self.state(after)
        moved = {c["id"]: key for key, c in later.items() if len(self._homes[c["id"]]) > 1}
        found: dict[Key, str | None] = {}
        for key, content in self.state(before).items() if moved else ():
            to = moved.get(content["id"], key)
            if to != key:
                found[to] = content["id"]
                found[key] = later[key]["id"] if key in later else None
        return found

    def bases(self, one: str, other: str) -> dict[str, int]:
        """The common ancestors from which no other descends, with their distance to the root."""
        common = self._ancestors(one) & self._ancestors(other)
        return {
            hash: self._rank(hash)
            for hash in common
            if not any(hash in self._ancestors(later) for later in common if later != hash)
        }

    def _ancestors(self, hash: str) -> frozenset[str]:
        """A commit and all before it, over all parents."""
        if hash not in self._before:
            found, todo = {hash}, [hash]
            while todo:
                new = [parent for parent in self._parents(todo.pop()) if parent not in found]
                found.update(new)
                todo += new
            self._before[hash] = frozenset(found - {self.nothing})
        return self._before[hash]

    def _rank(self, hash: str) -> int:
        rank = 0
        while hash != self.nothing:
            hash, rank = self._parents(hash)[0], rank + 1
        return rank

    def _parents(self, hash: str) -> list[str]:
        if hash == self.nothing:
            return []
        if hash not in self._known_parents:
            asked = Request("GET", path("trees", f"@{hash}", "history"))
            for meta in (entry["commitMeta"] for entry in self._items(asked, "logEntries")):
                self._known_parents[meta["hash"]] = meta["parentCommitHashes"]
        return self._known_parents[hash]

    def may_have_renames(self, hash: str) -> bool:
        return any(len(self._homes[c["id"]]) > 1 for c in self.state(hash).values())
