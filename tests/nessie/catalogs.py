"""Access to a catalog through Nessie's REST API, or in this process, behind one interface.

A test can let either of them do the same work. Each renders the whole catalog as the JSON of REST
v2, so that tests can compare them.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from morag.format.ids import NO_ANCESTOR
from morag.logic.consistency import Consistency
from morag.model.content import Content
from morag.model.keys import ContentKey
from morag.model.operations import Put

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from morag.model.meta import CommitMeta
    from morag.model.operations import Operation
    from morag.model.references import HeadStatus
    from morag.versions.repository import Repository
    from tests.nessie.server import Server

Json: TypeAlias = Any
NOTHING: Final = NO_ANCESTOR.hex()
_OLD_STATES: Final = 12
_CHECKED: Final = 500
_SCANNED: Final = 100
_PAGE: Final = 300


class Seen(Struct, frozen=True):
    """The whole catalog as REST v2 renders it, without nulls.

    Logs, entries and diffs are by hash, because many references share one. `entries` has some old
    states, too. A diff is from the default branch.
    """

    config: Json
    references: list[Json]
    logs: dict[str, list[Json]]
    entries: dict[str, list[Json]]
    diffs: dict[str, list[Json]]

    def differences(self, other: Seen) -> list[str]:
        """The first few differences: the output of a plain == would be too long."""
        left, right = (msgspec.structs.asdict(seen) for seen in (self, other))
        return list(islice(_differences("", left, right), 10))


class Catalog(Protocol):
    def head(self, name: str) -> str: ...

    def commit(
        self, branch: str, operations: Sequence[Operation], meta: CommitMeta
    ) -> dict[ContentKey, str]:
        """Commit on the head; returns the new content ids."""
        ...

    def create(self, kind: str, name: str, at: str) -> None: ...

    def assign(self, name: str, to: str) -> None: ...

    def delete(self, name: str) -> None: ...

    def merge(self, source: str, into: str, meta: CommitMeta | None = None) -> None: ...

    def transplant(self, source: str, hashes: Sequence[str], into: str) -> None: ...

    def contents(self, at: str) -> dict[ContentKey, Content]: ...

    def hashes(self, at: str) -> list[str]: ...

    def seen(self) -> Seen: ...

    def recent(self, name: str) -> Json:
        """The recent heads of a reference, with a verdict on each and on the log below."""
        ...

    def damage(self) -> list[str]:
        """The defects of the stored data; there should be none."""
        ...


class OverRest:
    def __init__(self, server: Server) -> None:
        self._server = server

    def head(self, name: str) -> str:
        hash = self._server.get("trees", name)["reference"]["hash"]
        assert isinstance(hash, str)
        return hash

    def commit(
        self, branch: str, operations: Sequence[Operation], meta: CommitMeta
    ) -> dict[ContentKey, str]:
        body = {"commitMeta": _filled(meta), "operations": [rest(op) for op in operations]}
        done = self._server.post("trees", self._at_head(branch), "history", "commit", body=body)
        added = done["addedContents"] or []
        return {ContentKey(tuple(a["key"]["elements"])): a["contentId"] for a in added}

    def create(self, kind: str, name: str, at: str) -> None:
        source = {"type": "DETACHED", "hash": at}
        self._server.post("trees", body=source, name=name, type=kind)

    def assign(self, name: str, to: str) -> None:
        self._server.put("trees", self._at_head(name), body={"type": "DETACHED", "hash": to})

    def delete(self, name: str) -> None:
        self._server.delete("trees", self._at_head(name))

    def merge(
        self, source: str, into: str, meta: CommitMeta | None = None, *, force: bool = False
    ) -> None:
        body = {"fromRefName": source, "fromHash": self.head(source)}
        if meta is not None:
            body["commitMeta"] = _filled(meta)
        if force:
            body["defaultKeyMergeMode"] = "FORCE"
        done = self._server.post("trees", self._at_head(into), "history", "merge", body=body)
        assert done["wasApplied"]

    def transplant(self, source: str, hashes: Sequence[str], into: str) -> None:
        body = {"fromRefName": source, "hashesToTransplant": list(hashes)}
        done = self._server.post("trees", self._at_head(into), "history", "transplant", body=body)
        assert done["wasApplied"]

    def contents(self, at: str) -> dict[ContentKey, Content]:
        entries = self._entries(self.head(at))
        return {
            ContentKey(tuple(e["name"]["elements"])): msgspec.convert(e["content"], Content)
            for e in entries
        }

    def hashes(self, at: str) -> list[str]:
        return [
            entry["commitMeta"]["hash"] for entry in self._all("logEntries", "trees", at, "history")
        ]

    def seen(self) -> Seen:
        references = self._all("references", "trees", fetch="ALL")
        main, heads = self.head("main"), [reference["hash"] for reference in references]
        logs = {head: self._log(head) for head in dict.fromkeys(heads) if head != NOTHING}
        return Seen(
            _config(self._server.get("config")),
            references,
            logs,
            {hash: self._entries(hash) for hash in _states(logs)},
            {
                head: self._all("diffs", "trees", f"@{main}", "diff", f"@{head}")
                for head in dict.fromkeys(heads)
            },
        )

    def recent(self, name: str) -> Json:
        found = self._server.get("trees", name, "recent-changes", scan_commits=_SCANNED)
        return _without_nulls(found)

    def damage(self) -> list[str]:
        """The references that the server finds damaged, one for each head."""
        names = {r["hash"]: r["name"] for r in self._all("references", "trees")}.values()
        return [name for name in names if verdicts(self.recent(name)) != {"COMMIT_CONSISTENT"}]

    def configure(self, policy: str) -> None:
        """Set the default cutoff policy. The configuration has its own reference."""
        config = {"type": "GARBAGE_COLLECTOR", "defaultCutoffPolicy": policy}
        self._server.post("config", "repository", body={"config": config})

    def policy(self) -> str:
        found = self._server.get("config", "repository", type="GARBAGE_COLLECTOR")
        return str(found["configs"][0]["defaultCutoffPolicy"])

    def kill(self) -> None:
        self._server.kill()

    def _at_head(self, name: str) -> str:
        return f"{name}@{self.head(name)}"

    def _log(self, hash: str) -> list[Json]:
        return self._all("logEntries", "trees", f"@{hash}", "history", fetch="ALL")

    def _entries(self, hash: str) -> list[Json]:
        return self._all("entries", "trees", f"@{hash}", "entries", content="true")

    def _all(self, items: str, *path: str, **query: object) -> list[Json]:
        """The items of all pages."""
        found = []
        while True:
            page = self._server.get(*path, max_records=_PAGE, **query)
            found += page[items]
            if not page["hasMore"]:
                return [_without_nulls(item) for item in found]
            query["page_token"] = page["token"]


class InProcess:
    def __init__(self, repo: Repository) -> None:
        self.repo = repo

    def head(self, name: str) -> str:
        return self.repo.references.get(name).hash

    def commit(
        self, branch: str, operations: Sequence[Operation], meta: CommitMeta
    ) -> dict[ContentKey, str]:
        return self.repo.commit(branch, operations, meta).added

    def create(self, kind: str, name: str, at: str) -> None:
        if kind == "TAG":
            self.repo.references.create_tag(name, f"@{at}")
        else:
            self.repo.references.create_branch(name, f"@{at}")

    def assign(self, name: str, to: str) -> None:
        self.repo.references.assign(name, f"@{to}", self.head(name))

    def delete(self, name: str) -> None:
        self.repo.references.delete(name, self.head(name))

    def merge(self, source: str, into: str, meta: CommitMeta | None = None) -> None:
        assert self.repo.merge(source, into, meta=meta).was_applied

    def transplant(self, source: str, hashes: Sequence[str], into: str) -> None:
        assert self.repo.transplant(hashes, into, source=source).was_applied

    def contents(self, at: str) -> dict[ContentKey, Content]:
        entries = self.repo.contents.entries(at, with_content=True)
        return {e.key: e.content for e in entries if e.content is not None}

    def hashes(self, at: str) -> list[str]:
        return list(self.repo.history.hashes(at))

    def seen(self) -> Seen:
        references = [rest(reference) for reference in self.repo.references.list()]
        for reference in references:
            reference |= self._metadata(reference["name"])
        main, heads = self.head("main"), [reference["hash"] for reference in references]
        logs = {head: self._log(head) for head in dict.fromkeys(heads) if head != NOTHING}
        described = self.repo.describe()
        config = {
            "defaultBranch": described.default_branch_name,
            "noAncestorHash": NOTHING,
            "repositoryCreationTimestamp": described.repository_created_time,
            "oldestPossibleCommitTimestamp": described.oldest_possible_commit_time,
        }
        return Seen(
            _config(config),
            references,
            logs,
            {hash: self._entries(hash) for hash in _states(logs)},
            {head: self._diff(main, head) for head in dict.fromkeys(heads)},
        )

    def damage(self) -> list[str]:
        """Check the commits of all references against the stored data.

        Of thousands of commits only some are checked, and every head.
        """
        names = [reference.name or "" for reference in self.repo.references.list()]
        logs = [self.hashes(name) for name in names]
        hashes = list(dict.fromkeys(hash for log in logs for hash in log))
        chosen = [log[0] for log in logs if log] + hashes[:: 1 + len(hashes) // _CHECKED]
        checked = [self.repo.history.check(f"@{hash}") for hash in dict.fromkeys(chosen)]
        return [
            f"{status.id.hex()}: {finding.problem} ({finding.id.hex()})"
            for status in checked
            if status.consistency is not Consistency.COMMIT_CONSISTENT
            for finding in status.findings
        ]

    def recent(self, name: str) -> Json:
        found = self.repo.references.history(name, _SCANNED)
        current, *previous = (_status(s) for s in (found.current, *found.previous))
        return {
            "reference": rest(found.reference),
            "current": current,
            "previous": previous,
            "commitLogConsistency": found.log,
        }

    def _metadata(self, name: str) -> Json:
        found = self.repo.references.metadata(name)
        if found is None:
            return {}
        shown = {
            "numCommitsAhead": found.ahead,
            "numCommitsBehind": found.behind,
            "commitMetaOfHEAD": _meta(found.head),
            "commonAncestorHash": found.common_ancestor,
            "numTotalCommits": found.total_commits,
        }
        return {"metadata": _without_nulls(shown)}

    def _log(self, hash: str) -> list[Json]:
        shown = []
        for entry in self.repo.history.log(f"@{hash}", with_operations=True):
            # Nessie lists deletes before puts, each group in key order.
            operations = sorted(entry.operations or (), key=lambda op: isinstance(op, Put))
            shown.append(
                {"commitMeta": _meta(entry.meta), "parentCommitHash": entry.parent}
                | ({"operations": [rest(op) for op in operations]} if operations else {})
            )
        return shown

    def _entries(self, hash: str) -> list[Json]:
        return [
            {
                "type": entry.type,
                "name": rest(entry.key),
                "contentId": entry.content_id,
                "content": rest(entry.content),
            }
            for entry in self.repo.contents.entries(f"@{hash}", with_content=True)
        ]

    def _diff(self, before: str, after: str) -> list[Json]:
        return [
            _without_nulls(
                {"key": rest(d.key), "from": _or_none(d.before), "to": _or_none(d.after)}
            )
            for d in self.repo.contents.diff(f"@{before}", f"@{after}")
        ]


def assert_same(catalog: Catalog, shown: Seen) -> None:
    assert catalog.seen().differences(shown) == []


def names(seen: Seen) -> list[str]:
    return [reference["name"] for reference in seen.references]


def verdicts(recent: Json) -> set[str]:
    heads = [recent["current"], *recent["previous"]]
    return {recent["commitLogConsistency"], *(head["commitConsistency"] for head in heads)}


def rest(value: object) -> Json:
    """An object as the JSON of REST v2, without empty properties of a namespace."""
    return _without_empty_properties(_without_nulls(json.loads(msgspec.json.encode(value))))


def _or_none(content: Content | None) -> Json:
    return None if content is None else rest(content)


def _status(status: HeadStatus) -> Json:
    meta = {} if status.meta is None else {"meta": _meta(status.meta)}
    return {"commitHash": status.hash, "commitConsistency": status.consistency} | meta


def _meta(meta: CommitMeta) -> Json:
    shown = rest(meta)
    if not meta.properties:
        shown.pop("allProperties", None)
    return shown


def _filled(meta: CommitMeta) -> Json:
    """Metadata as a client sends it: without empty fields."""
    return {"message": meta.message} | {name: v for name, v in rest(meta).items() if v}


def _config(config: Json) -> Json:
    kept = (
        "defaultBranch",
        "noAncestorHash",
        "repositoryCreationTimestamp",
        "oldestPossibleCommitTimestamp",
    )
    return {name: config[name] for name in kept}


def _states(logs: dict[str, list[Json]]) -> list[str]:
    """Every head, and some commits of the longest log."""
    longest = max(logs.values(), key=len, default=[])
    hashes = [entry["commitMeta"]["hash"] for entry in longest]
    return list(dict.fromkeys([*logs, *hashes[:: max(1, len(hashes) // _OLD_STATES)]]))


def _without_nulls(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_without_nulls(part) for part in value]
    return value


def _without_empty_properties(value: Json) -> Json:
    if isinstance(value, dict):
        return {
            name: _without_empty_properties(part)
            for name, part in value.items()
            if name != "properties" or part
        }
    return value


def _differences(path: str, one: Json, other: Json) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in dict.fromkeys([*one, *other]):
            if name in one and name in other:
                yield from _differences(f"{path}/{name}", one[name], other[name])
            else:
                left, right = (str(side.get(name, "nothing"))[:300] for side in (one, other))
                yield f"{path}/{name}: {left} != {right}"
    elif isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            yield f"{path}: {len(one)} items != {len(other)} items"
        for i, (left, right) in enumerate(zip(one, other, strict=False)):
            yield from _differences(f"{path}/{i}", left, right)
    elif one != other:
        yield f"{path}: {str(one)[:300]} != {str(other)[:300]}"
