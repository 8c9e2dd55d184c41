"""Random changes of references, content, namespaces and configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from tests.nessie.differential.known_differences import TYPE_CHANGE
from tests.nessie.differential.random_requests import RandomRequests, key_json
from tests.nessie.differential.requests import Request
from tests.nessie.differential.vocabulary import (
    BRANCHES,
    NAMESPACES,
    TAGS,
    TYPES,
    WRONG_NAMES,
    content,
    encoded,
    meta,
    some_key,
)

if TYPE_CHECKING:
    from tests.nessie.differential.symbols import Json
    from tests.nessie.differential.vocabulary import Key

_DOCUMENTATION: Final = {"mimeType": "text/plain", "text": "x"}
_GRACE_PERIODS: Final = ("PT3H", "P1D", "PT0S", "xyz", "PT90M", "PT1.5S")
_MANY: Final = 14  # References; beyond that, deleting is more likely than creating.
_KINDS: Final = ("BRANCH", "BRANCH", "BRANCH", "TAG", "branch", "tag", "FOO", "DETACHED")
_POLICIES: Final = (
    "P30D",
    "PT10M",
    "NONE",
    "none",
    "100",
    "2020-01-01T00:00:00Z",
    "0",
    "abc",
    "P1Y",
)


class Writes(RandomRequests):
    # References

    def create(self) -> None:
        if len(self.world.references) > _MANY:
            self.delete()
            return
        source, kind = self.name(), self.one(_KINDS if self.chance(0.1) else _KINDS[:4])
        name = self.new_name(kind)
        if self.chance(0.7):
            request = Request("POST", self.path("trees"), (("name", name), ("type", kind)))
            self.ask(request.with_json(self.target(source)))
        else:
            made = {"type": kind.upper(), "name": name, "hash": self.hash_on(source)}
            query = (("sourceRefName", source),) if self.chance(0.8) else ()
            request = Request("POST", self.path("trees", "tree", api="v1"), query)
            self.ask(request.with_json(made))

    def assign(self) -> None:
        name = self.branch() if self.chance(0.7) else self.name()
        request = self.moving("PUT", name)
        self.ask(request.with_json(self.target(self.name())))

    def delete(self) -> None:
        self.ask(self.moving("DELETE", self.name()))

    def moving(self, method: str, name: str) -> Request:
        """A request that changes a reference, with the hash that is expected of it."""
        kind = str(self.world.references.get(name, {}).get("type", "BRANCH"))
        kind = self.one(_KINDS) if self.chance(0.1) else kind
        if self.chance(0.7):
            query = (("type", kind),) if self.chance(0.3) else ()
            place = name if self.chance(0.04) else f"{name}@{self.hash_on(name)}"
            return Request(method, self.path("trees", place), query)
        query = (("expectedHash", self.hash_on(name)),) if self.chance(0.96) else ()
        return Request(method, self.path("trees", kind.lower(), name, api="v1"), query)

    def target(self, source: str) -> Json:
        """The target of a new or moved reference."""
        hash = self.hash_on(source)
        if self.chance(0.15):
            return {"type": "DETACHED", "hash": hash}
        kind = str(self.world.references.get(source, {}).get("type", "BRANCH"))
        kind = self.one(["BRANCH", "TAG", "NOPE"]) if self.chance(0.1) else kind
        made = {"type": kind, "name": source, "hash": hash}
        if self.chance(0.1):
            made["hash"] = hash + self.relative()
        return made

    def new_name(self, kind: str) -> str:
        if self.chance(0.1):
            return self.one(WRONG_NAMES)
        return self.one(TAGS if kind.upper() == "TAG" else BRANCHES)

    # Commits

    def commit(self) -> None:
        branch = self.branch()
        expected = self.hash_on(branch)
        body = {"commitMeta": meta(self.random), "operations": self.operations(branch, expected)}
        if self.chance(0.8):
            place = branch if self.chance(0.02) else f"{branch}@{expected}"
            place += self.relative() if self.chance(0.02) else ""
            request = Request("POST", self.path("trees", place, "history", "commit"))
        else:
            query = (("expectedHash", expected),) if self.chance(0.97) else ()
            path = self.path("trees", "branch", branch, "commit", api="v1")
            request = Request("POST", path, query)
            self.expect_content(branch, body["operations"])
        self.ask(replace(request.with_json(body), headers=self.commit_headers()))

    def operations(self, branch: str, expected: str) -> list[Json]:
        known = expected in self.world.hashes
        state = dict(self.world.state(expected if known else self.head(branch)))
        before = dict(state)
        made: list[Json] = []
        for _ in range(self.one([1, 1, 1, 2, 2, 3, 4])):
            made += self.operation(state, before)
        if self.chance(0.1):
            self.random.shuffle(made)
        return made if self.chance(0.995) else []

    def operation(self, state: dict[Key, Json], before: dict[Key, Json]) -> list[Json]:
        """A plausible change of `state`, which is updated with it.

        A key of `before` keeps its type: Nessie stores another type wrongly.
        """
        roll = self.random.random()
        stored = [key for key, content in state.items() if content.get("id")]
        if roll < 0.42 or not stored:
            return self.new(state, before)
        key = self.one(stored)
        if roll < 0.97 and state[key]["type"] == "NAMESPACE" and self.chance(0.7):
            return self.new(state, before)
        existing = state[key]
        if roll < 0.64:
            return [put(key, self.changed(key, existing))]
        if roll < 0.78:
            del state[key]
            return [{"type": "DELETE", "key": key_json(key)}]
        if roll < 0.82:
            return self.rename(state, before, key)
        if roll < 0.87:
            return [{"type": "UNCHANGED", "key": key_json(key)}]
        if roll < 0.9:
            replacement = content(self.random, existing["type"], key)
            return [{"type": "DELETE", "key": key_json(key)}, put(key, replacement)]
        return self.doubtful(state, key)

    def new(self, state: dict[Key, Json], before: dict[Key, Json]) -> list[Json]:
        """A new key, as a rule with the namespaces that it needs."""
        key = self.one(NAMESPACES) if self.chance(0.2) else some_key(self.random)
        if key in state:
            return [put(key, self.changed(key, state[key]))]
        if key in before:
            state[key] = content(self.random, before[key]["type"], key)
            return [put(key, state[key])]
        made = []
        for depth in range(1, len(key)):
            if key[:depth] not in {**state, **before} and self.chance(0.9):
                state[key[:depth]] = self.namespace(key[:depth])
                made.append(put(key[:depth], state[key[:depth]]))
        wanted = key in NAMESPACES and self.chance(0.8)
        state[key] = self.namespace(key) if wanted else self.any_content(key)
        return [*made, put(key, state[key])]

    def rename(self, state: dict[Key, Json], before: dict[Key, Json], key: Key) -> list[Json]:
        to = some_key(self.random)
        if to in state or to in before:
            return []
        moved = state[to] = state.pop(key)
        changed = self.changed(to, moved) if self.chance(0.4) else moved
        made = [{"type": "DELETE", "key": key_json(key)}, put(to, changed)]
        return made if self.chance(0.7) else made[::-1]

    def doubtful(self, state: dict[Key, Json], key: Key) -> list[Json]:
        """Operations that a client may get wrong."""
        existing, absent = state[key], some_key(self.random)
        strange = self.one(["x", "cafebabe-0000-4000-8000-cafebabe0000", existing.get("id", "y")])
        return self.one(
            [
                [{"type": self.one(["DELETE", "UNCHANGED"]), "key": key_json(absent)}],
                [put(key, self.any_content(key))],
                [put(absent, existing)],
                [put(key, {**existing, "id": strange})],
                [put(key, existing), put(key, existing)],
                [put(key, existing), {"type": "DELETE", "key": key_json(key)}],
                [{"type": "UNCHANGED", "key": key_json(key)}, put(key, existing)],
                [{"type": "DELETE", "key": key_json(key)}] * 2,
                [put(absent, self.any_content(absent)) | {"documentation": _DOCUMENTATION}],
                [put(key, existing) | {"metadata": [{"variant": "x", "y": 1}]}],
                [put(key, existing | {"unknown": 1})],
            ]
        )

    def expect_content(self, branch: str, operations: list[Json]) -> None:
        """Add to puts the content that they replace, as v1 allows."""
        state = self.world.state(self.head(branch))
        for operation in operations:
            key = tuple(operation["key"]["elements"])
            if operation["type"] == "PUT" and self.chance(0.5):
                existing = state.get(key) or self.any_content(key)
                operation["expectedContent"] = (
                    self.changed(key, existing) if self.chance(0.2) else existing
                )

    def any_content(self, key: Key) -> Json:
        return content(self.random, self.one([*TYPES, TYPES[0], TYPES[0]]), key)

    def namespace(self, key: Key) -> Json:
        return content(self.random, "NAMESPACE", key if self.chance(0.97) else ("other",))

    def changed(self, key: Key, existing: Json) -> Json:
        """Other content of the same type, under the same id if it has one."""
        return content(self.random, existing["type"], key, existing.get("id"))

    def type_change(self) -> None:
        """Send a change of type to Morag, which must refuse it and change nothing."""
        branch = self.one(self.world.names("BRANCH"))
        head = self.world.head(branch)
        state = self.world.state(head)
        if not state or self.pair.twins or branch == "-":
            return
        key = self.one(list(state))
        existing = state[key]
        other = self.one([kind for kind in (*TYPES, "NAMESPACE") if kind != existing["type"]])
        operations = [put(key, content(self.random, other, key, existing["id"]))]
        roll = self.random.random()
        if roll < 0.3:
            to = some_key(self.random)
            if to in state or (len(to) > 1 and to[:-1] not in state):
                return
            moved = put(to, operations[0]["content"])
            operations = [{"type": "DELETE", "key": key_json(key)}, moved]
        elif roll < 0.6:
            if self.children(state, key):
                return
            operations = self.replaced(key, existing)
        request = Request("POST", self.path("trees", f"{branch}@{head}", "history", "commit"))
        request = request.with_json({"commitMeta": {"message": "x"}, "operations": operations})
        reply = self.pair.ask_one(request)
        if reply.status == 400 and reply.json["errorCode"] == "BAD_REQUEST":
            self.pair.known.count(TYPE_CHANGE)
        else:
            self.pair.blame(request, "a type change is not refused")
        self.world.refresh()

    def conflicting_type_change(self) -> None:
        """Replace a deleted key by another type, with a conflict on another key.

        Without the conflict, Nessie would accept it and damage the branch.
        """
        branch = self.one(self.world.names("BRANCH"))
        head = self.world.head(branch)
        state = self.world.state(head)
        if not state or branch == "-":
            return
        key = self.one(list(state))
        operations = self.replaced(key, state[key])
        filled = state[key]["type"] == "NAMESPACE" and self.children(state, key)
        if not filled or self.chance(0.3):
            absent = self.one(["DELETE", "PUT"])
            conflicting = {"type": absent, "key": key_json(("never", "there"))}
            if absent == "PUT":
                conflicting["content"] = self.any_content(key)
            operations.insert(self.random.randrange(3), conflicting)
        body = {"commitMeta": meta(self.random), "operations": operations}
        if self.chance(0.7):
            request = Request("POST", self.path("trees", f"{branch}@{head}", "history", "commit"))
        else:
            path = self.path("trees", "branch", branch, "commit", api="v1")
            request = Request("POST", path, (("expectedHash", head),))
        self.ask(request.with_json(body), spoil=0)

    def replaced(self, key: Key, existing: Json) -> list[Json]:
        other = self.one([kind for kind in (*TYPES, "NAMESPACE") if kind != existing["type"]])
        replacement = put(key, {**content(self.random, other, key), "id": None})
        return [{"type": "DELETE", "key": key_json(key)}, replacement]

    def children(self, state: dict[Key, Json], key: Key) -> list[Key]:
        return [other for other in state if other[: len(key)] == key and other != key]

    # Namespaces and configuration

    def namespaces(self) -> None:
        branch = self.branch()
        key = self.one(NAMESPACES) if self.chance(0.8) else self.key(self.head(branch))
        place = self.path("namespaces", "namespace", branch, encoded(self.random, key), api="v1")
        query = (("hashOnRef", self.hash_on(branch)),) if self.chance(0.1) else ()
        roll = self.random.random()
        if roll < 0.5:
            made = self.namespace(key)
            self.ask(Request("PUT", place, query).with_json(made))
        elif roll < 0.8:
            updates = {f"p{i}": self.person() for i in range(self.random.randrange(3))}
            removals = self.random.sample(["p0", "p1", "p9"], self.random.randrange(3))
            change = {"propertyUpdates": updates, "propertyRemovals": removals}
            self.ask(Request("POST", place, query).with_json(change))
        else:
            self.ask(Request("DELETE", place, query))

    def configure(self) -> None:
        config: Json = {"type": "GARBAGE_COLLECTOR"}
        if self.chance(0.7):
            config["defaultCutoffPolicy"] = self.one(_POLICIES)
        if self.chance(0.4):
            policy = {"referenceNamePattern": "main", "policy": self.one(_POLICIES)}
            config["perRefCutoffPolicies"] = [policy] * self.random.randrange(3)
        if self.chance(0.4):
            config["newFilesGracePeriod"] = self.one(_GRACE_PERIODS)
        if self.chance(0.4):
            config["expectedFileCountPerContent"] = self.one([1, 123, "5", -1, 1.5])
        if self.chance(0.05):
            config["type"] = "CUSTOM"
        self.ask(Request("POST", self.path("config", "repository")).with_json({"config": config}))


def put(key: Key, content: Json) -> Json:
    return {"type": "PUT", "key": key_json(key), "content": content}
