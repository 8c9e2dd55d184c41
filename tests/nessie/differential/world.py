"""The state that both servers have: references, contents and logs, in symbols."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tests.nessie.differential.pair import Diverged
from tests.nessie.differential.requests import Request, path
from tests.nessie.differential.symbols import HASH, MORAG, NESSIE

if TYPE_CHECKING:
    from tests.nessie.differential.pair import Pair
    from tests.nessie.differential.symbols import Json
    from tests.nessie.differential.vocabulary import Key

_LOGGED: Final = 30


class Logged(Struct, frozen=True):
    hash: str
    parents: list[str]


class World:
    """Read from answers of both servers that were compared and agree."""

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
        """Read all references. If they differ, later answers would differ, too."""
        found = self._pair.ask(Request("GET", path("trees")))
        if not found.same:
            raise Diverged("the references are not the same")
        self.references = {ref["name"]: ref for ref in found.json["references"]}
        known = {*self.hashes}
        heads = dict.fromkeys(ref["hash"] for ref in self.references.values())
        self.hashes += [head for head in heads if head not in known]

    def heal(self) -> None:
        """Reset all references to their last common state, so that the run can continue.

        That changes the recent heads of references, which are not compared afterwards.
        """
        self.healed = True
        for side in (NESSIE, MORAG):
            listed = self._pair.ask_one(Request("GET", path("trees")), side).json["references"]
            current = {ref["name"]: ref for ref in listed}
            for name, ref in {**current, **self.references}.items():
                if current.get(name) != self.references.get(name):
                    self._pair.ask_one(self._reset(name, current.get(name), ref), side)
        self.refresh()

    def _reset(self, name: str, current: Json, ref: Json) -> Request:
        target = {"type": "DETACHED", "hash": ref["hash"]}
        if current is None:
            query = (("name", name), ("type", ref["type"]))
            return Request("POST", path("trees"), query).with_json(target)
        place = path("trees", f"{name}@{current['hash']}")
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
            request = Request("GET", path("trees", f"@{hash}", "entries"), (("content", "true"),))
            entries = self._items(request, "entries")
            self._states[hash] = {tuple(e["name"]["elements"]): e["content"] for e in entries}
            for key, content in self._states[hash].items():
                self._homes.setdefault(content["id"], set()).add(key)
        return self._states[hash]

    def log(self, hash: str) -> list[Logged]:
        """The newest commits of a log, newest first."""
        if hash not in self._logs:
            query = (("max-records", str(_LOGGED)),)
            request = Request("GET", path("trees", f"@{hash}", "history"), query)
            metas = [entry["commitMeta"] for entry in self._items(request, "logEntries")]
            self._logs[hash] = [Logged(m["hash"], m["parentCommitHashes"]) for m in metas]
        return self._logs[hash]

    def _items(self, request: Request, items: str) -> list[Json]:
        reply = self._pair.ask(request)
        if not reply.ok:
            raise Diverged(f"the servers do not agree on {request}: {reply.status}")
        found: list[Json] = reply.json[items]
        return found

    def commit(self, spec: str) -> Logged | None:
        """The commit of a hash with an optional relative part, or None if there is none.

        Its hash is `nothing` before the first commit.
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
        """The best common ancestors of two commits, with their distance to the root."""
        common = self._ancestors(one) & self._ancestors(other)
        return {
            hash: self._rank(hash)
            for hash in common
            if not any(hash in self._ancestors(later) for later in common if later != hash)
        }

    def _ancestors(self, hash: str) -> frozenset[str]:
        """A commit and everything before it, through all parents."""
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
            request = Request("GET", path("trees", f"@{hash}", "history"))
            for meta in (entry["commitMeta"] for entry in self._items(request, "logEntries")):
                self._known_parents[meta["hash"]] = meta["parentCommitHashes"]
        return self._known_parents[hash]

    def may_have_renames(self, hash: str) -> bool:
        return any(len(self._homes[c["id"]]) > 1 for c in self.state(hash).values())
