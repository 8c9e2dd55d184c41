"""Correct clients: they read, commit, branch, merge, tag and delete, in both versions of the API.

Each client has its own tables, so that no commit may fail. Some requests are invalid on purpose,
and must be refused for the right reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from msgspec import Struct, field

from tests.load.http_client import Connection, request

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from tests.load.http_client import Answer
    from tests.server_process import Address

NAMESPACE: Final = "load"
_OWN_TABLES: Final = 4
_SHOWN_BYTES: Final = 300


class Failed(Exception):
    """A correct request got a wrong answer."""


class Table(Struct):
    """A table as its owner knows it."""

    name: str
    id: str
    snapshot: int
    before: str
    """A commit that does not have this snapshot yet: committing on top of it is a conflict."""
    is_new: bool = True
    """Whether the table does not exist in that commit."""


class Record(Struct):
    """The changes of all clients, to compare with the final state."""

    acknowledged: dict[str, dict[str, str | None]] = field(default_factory=dict)
    """By branch: hash and message of commits and merges; None for a default message."""
    tried: set[str] = field(default_factory=set)
    """The messages of all commits and merges that were sent."""
    tables: dict[str, dict[str, int]] = field(default_factory=dict)
    """By branch: tables and their snapshots."""
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


class Worker:
    """One client with a connection and a branch that it shares with others."""

    def __init__(
        self, address: Address, name: str, branch: str, record: Record, random: Random
    ) -> None:
        self._address = address
        self._name = name
        self._branch = branch
        self._record = record
        self._random = random
        self._connection = Connection(address)
        self._head = ""
        self._tables: list[Table] = []
        self._made = 0

    async def work(self, turns: Iterable[object], steps: Steps) -> None:
        names, chances = list(steps), list(steps.values())
        try:
            await self.read_reference()
            for _ in turns:
                [name] = self._random.choices(names, chances)
                await getattr(self, name)()
                self._record.counts[name] += 1
        except (Failed, OSError, EOFError) as failure:
            self._record.failures.append(f"{self._name}: {failure!r}")
        finally:
            await self._connection.close()

    # Reading.

    async def read_reference(self) -> None:
        if self._flip():
            answer = await self._ask("GET", f"/api/v2/trees/{self._branch}")
            self._head = answer["reference"]["hash"]
        else:
            answer = await self._ask("GET", f"/api/v1/trees/tree/{self._branch}")
            self._head = answer["hash"]

    async def read_content(self) -> None:
        if not self._tables:
            return
        table = self._random.choice(self._tables)
        key = f"{NAMESPACE}.{table.name}"
        if self._flip():
            answer = await self._ask("GET", f"/api/v2/trees/{self._branch}/contents/{key}")
            content = answer["content"]
        else:
            content = await self._ask("GET", f"/api/v1/contents/{key}?ref={self._branch}")
        self._expect(content["snapshotId"], table.snapshot)

    async def read_contents(self) -> None:
        tables = self._tables
        keys = [{"elements": [NAMESPACE, table.name]} for table in tables]
        keys.append({"elements": [NAMESPACE]})
        body = {"requestedKeys": keys}
        if self._flip():
            answer = await self._ask("POST", f"/api/v2/trees/{self._branch}/contents", body)
        else:
            answer = await self._ask("POST", f"/api/v1/contents?ref={self._branch}", body)
        found = {
            each["key"]["elements"][1]: each["content"]["snapshotId"]
            for each in answer["contents"]
            if len(each["key"]["elements"]) == 2
        }
        self._expect(found, {table.name: table.snapshot for table in tables})

    async def list_entries(self) -> None:
        entries = f"/api/v2/trees/{self._branch}/entries"
        if self._flip():
            least = f"{NAMESPACE}.{self._name}"
            answer = await self._ask("GET", f"{entries}?min-key={least}&max-key={least}~")
            found = sorted(entry["name"]["elements"][1] for entry in answer["entries"])
            self._expect(found, sorted(table.name for table in self._tables))
        elif self._flip():
            filter = quote("entry.contentType == 'ICEBERG_TABLE'")
            await self._ask("GET", f"{entries}?content=true&max-records=100&filter={filter}")
        else:
            await self._ask("GET", f"/api/v1/trees/tree/{self._branch}/entries?maxRecords=100")

    async def list_references(self) -> None:
        answer = await self._ask("GET", "/api/v2/trees" if self._flip() else "/api/v1/trees")
        names = [reference["name"] for reference in answer["references"]]
        if self._branch not in names:
            raise Failed(f"{self._branch} is not among {names}")

    async def read_history(self) -> None:
        if self._flip():
            path = f"/api/v2/trees/{self._branch}/history?max-records=20&fetch=ALL"
        else:
            path = f"/api/v1/trees/tree/{self._branch}/log?maxRecords=20"
        answer = await self._ask("GET", path)
        if not answer["logEntries"]:
            raise Failed(f"{self._branch} has no log")

    async def compare(self) -> None:
        """Diff the last seen head with itself, or with the current head."""
        if self._flip():
            path = f"/api/v2/trees/{self._branch}@{self._head}/diff/{self._branch}"
            await self._ask("GET", f"{path}?max-records=100")
        else:
            seen = f"{self._branch}*{self._head}"
            answer = await self._ask("GET", f"/api/v1/diffs/{seen}...{seen}")
            self._expect(answer["diffs"], [])

    # Writing.

    async def commit(self) -> None:
        if len(self._tables) < _OWN_TABLES:
            await self._commit_new()
        else:
            await self._commit_update(self._random.choice(self._tables))

    async def branch_and_merge(self) -> None:
        """Create a branch with one new table, merge it into the shared branch, and delete it."""
        own, table = f"own-{self._name}-{self._next()}", f"merged-{self._name}-{self._next()}"
        await self._create(own, "BRANCH", self._branch, self._head)
        source, _ = await self._commit(own, self._head, put(table, 1, None))
        what = {"fromRefName": own, "fromHash": source}
        message: str | None = None
        if self._flip():
            message = f"merge {own}"
            self._record.tried.add(message)
            path = f"/api/v2/trees/{self._branch}@{self._head}/history/merge"
            answer = await self._ask("POST", path, {**what, "commitMeta": {"message": message}})
        else:
            path = f"/api/v1/trees/branch/{self._branch}/merge?expectedHash={self._head}"
            answer = await self._ask("POST", path, what)
        self._acknowledge(answer["resultantTargetHash"], message)
        self._record.tables[self._branch][table] = 1
        await self._delete(own, "branch", source)

    async def tag(self) -> None:
        name = f"{self._name}-tag-{self._next()}"
        await self._create(name, "TAG", self._branch, self._head)
        answer = await self._ask("GET", f"/api/v2/trees/{name}")
        self._expect(answer["reference"]["hash"], self._head)
        await self._delete(name, "tag", self._head)

    # Requests that must be refused.

    async def commit_too_late(self) -> None:
        if not self._tables:
            return
        table = self._random.choice(self._tables)
        operation = put(table.name, 0, None if table.is_new else table.id)
        body = operations("too late", operation)
        path = f"/api/v2/trees/{self._branch}@{table.before}/history/commit"
        answer = await self._ask("POST", path, body, expected=409)
        self._expect(answer["errorCode"], "REFERENCE_CONFLICT")

    async def create_what_exists(self) -> None:
        answer = await self._create(self._branch, "BRANCH", "main", self._head, expected=409)
        self._expect(answer["errorCode"], "REFERENCE_ALREADY_EXISTS")

    async def read_what_is_missing(self) -> None:
        if self._flip():
            path = f"/api/v2/trees/{self._branch}/contents/{NAMESPACE}.nothing"
            expected = "CONTENT_NOT_FOUND"
        else:
            path, expected = "/api/v1/trees/tree/no-such-branch", "REFERENCE_NOT_FOUND"
        answer = await self._ask("GET", path, expected=404)
        self._expect(answer["errorCode"], expected)

    async def reconnect(self) -> None:
        await self._connection.close()

    # Single requests.

    async def _commit_new(self) -> None:
        name, snapshot, before = f"{self._name}-{self._next()}", self._next(), self._head
        _, id = await self._commit(self._branch, before, put(name, snapshot, None))
        self._record.tables[self._branch][name] = snapshot
        if id is None:
            path = f"/api/v1/contents/{NAMESPACE}.{name}?ref={self._branch}"
            id = (await self._ask("GET", path))["id"]
        self._tables.append(Table(name, id, snapshot, before))

    async def _commit_update(self, table: Table) -> None:
        before, snapshot = self._head, self._next()
        await self._commit(self._branch, before, put(table.name, snapshot, table.id))
        table.snapshot, table.before, table.is_new = snapshot, before, False
        self._record.tables[self._branch][table.name] = snapshot

    async def _commit(self, branch: str, head: str, operation: object) -> tuple[str, str | None]:
        """The hash of the commit, and the id of new content if the answer has it."""
        message = f"{self._name} {self._next()}"
        body = operations(message, operation)
        self._record.tried.add(message)
        id: str | None = None
        if self._flip():
            path = f"/api/v2/trees/{branch}@{head}/history/commit"
            answer = await self._ask("POST", path, body)
            hash: str = answer["targetBranch"]["hash"]
            if answer["addedContents"]:
                id = answer["addedContents"][0]["contentId"]
        else:
            path = f"/api/v1/trees/branch/{branch}/commit?expectedHash={head}"
            hash = (await self._ask("POST", path, body))["hash"]
        if branch == self._branch:
            self._acknowledge(hash, message)
        return hash, id

    def _acknowledge(self, hash: str, message: str | None) -> None:
        self._head = hash
        self._record.acknowledged[self._branch][hash] = message

    async def _create(
        self, name: str, type: str, source: str, hash: str, expected: int = 200
    ) -> Any:
        if self._flip():
            body = {"type": "BRANCH", "name": source, "hash": hash}
            path = f"/api/v2/trees?name={name}&type={type}"
        else:
            body = {"type": type, "name": name, "hash": hash}
            path = f"/api/v1/trees/tree?sourceRefName={source}"
        return await self._ask("POST", path, body, expected=expected)

    async def _delete(self, name: str, kind: str, hash: str) -> None:
        if self._flip():
            await self._ask("DELETE", f"/api/v2/trees/{name}@{hash}")
        else:
            path = f"/api/v1/trees/{kind}/{name}?expectedHash={hash}"
            await self._ask("DELETE", path, expected=204)

    async def _ask(self, method: str, path: str, body: object = None, expected: int = 200) -> Any:
        sent = request(self._address, method, path, body, zipped=self._flip())
        answer: Answer = await self._connection.ask(sent)
        if answer.status != expected:
            shown = answer.body[:_SHOWN_BYTES]
            raise Failed(f"{method} {path}: {expected} expected, got {answer.status} {shown!r}")
        return answer.json if answer.body else None

    def _expect(self, found: object, expected: object) -> None:
        if found != expected:
            raise Failed(f"{expected!r} expected, got {found!r}")

    def _next(self) -> int:
        self._made += 1
        return self._made

    def _flip(self) -> bool:
        return self._random.random() < 0.5


Steps = Mapping[str, int]
"""Names of methods with their weights."""

READS: Final[Steps] = {
    "read_reference": 15,
    "read_content": 25,
    "read_contents": 5,
    "list_entries": 6,
    "list_references": 2,
    "read_history": 3,
    "compare": 3,
    "commit_too_late": 3,
    "create_what_exists": 2,
    "read_what_is_missing": 3,
    "reconnect": 1,
}
"""The steps that do not change the repository."""
EVERYTHING: Final[Steps] = {**READS, "commit": 25, "branch_and_merge": 2, "tag": 1}


def operations(message: str, operation: object) -> object:
    return {"commitMeta": {"message": message}, "operations": [operation]}


def put(name: str, snapshot: int, id: str | None) -> object:
    content = {
        "type": "ICEBERG_TABLE",
        "id": id,
        "metadataLocation": f"s3://lake/{name}/{snapshot}.metadata.json",
        "snapshotId": snapshot,
        "schemaId": 0,
        "specId": 0,
        "sortOrderId": 0,
    }
    return {"type": "PUT", "key": {"elements": [NAMESPACE, name]}, "content": content}
