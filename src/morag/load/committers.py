"""Simulated clients that change branches. Each tracks the hashes and content ids that it needs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from msgspec import json

from morag.load.http_framing import body_of
from morag.load.request_bytes import (
    FIRST_SNAPSHOT,
    Branch,
    commit,
    commit_table,
    create_branch,
    delete_branch,
    put_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.load.driver import Steps
    from morag.load.target import Target

NAMESPACE: Final = "race"

_HASH_CHARACTERS: Final = 64
_ID_CHARACTERS: Final = 36
_HOT_TABLES: Final = 4
_NEW_TABLE_EVERY: Final = 50
_SETS_OF_TABLES: Final = 4


def committer(
    target: Target, branch: Branch, number: int, namespace: str = NAMESPACE, commits: int = 0
) -> Steps:
    """Update its own tables in turn, and sometimes create a new one that replaces the oldest.

    The expected hash is that of its own last commit, as with a real client: after commits of other
    clients, the server must find out that they changed other tables.
    """
    head = branch.hash
    tables: list[tuple[str, str]] = []
    for count in range(1, (commits or sys.maxsize - 1) + 1):
        is_new = len(tables) < _HOT_TABLES or count % _NEW_TABLE_EVERY == 0
        if is_new:
            table, id = f"table-{number:02}-{count:07}", "null"
        else:
            table, id = tables[count % _HOT_TABLES]
        snapshot = FIRST_SNAPSHOT + count
        response = yield (
            commit_table(target, branch.name, head, namespace, table, snapshot, id),
            1,
        )
        if response:
            head = _string_after(response, b'"hash"', _HASH_CHARACTERS)
            if is_new:
                id = _string_after(response, b'"contentId"', _ID_CHARACTERS)
                tables = [*tables, (table, f'"{id}"')][-_HOT_TABLES:]


def read_modify_write(target: Target, branch: Branch, table: str) -> Steps:
    """Get the content of a table, and commit it changed, based on the commit that was read."""
    read = target.get(f"trees/{branch.name}/contents/{NAMESPACE}.{table}")
    for count in range(sys.maxsize):
        response = yield read, 0
        if not response:
            continue
        id = _string_after(response, b'"id"', _ID_CHARACTERS)
        head = _string_after(response, b'"hash"', _HASH_CHARACTERS)
        snapshot = FIRST_SNAPSHOT + count
        yield commit_table(target, branch.name, head, NAMESPACE, table, snapshot, f'"{id}"'), 1


def many_puts(target: Target, branch: Branch, puts: int) -> Steps:
    """Change many tables in one commit, a few sets of tables in turn."""
    sets = [
        {f"table-{each}-{number:03}": None for number in range(puts)}
        for each in range(_SETS_OF_TABLES)
    ]
    ids: dict[str, str | None] = {}
    for count in range(sys.maxsize):
        names = sets[count % _SETS_OF_TABLES]
        snapshot = FIRST_SNAPSHOT + count
        operations = [put_table((NAMESPACE, name), snapshot, ids.get(name)) for name in names]
        response = yield commit(target, branch, "many tables", operations), puts
        if response:
            found = _decoded(response)
            branch = Branch(branch.name, found["targetBranch"]["hash"])
            for added in found.get("addedContents") or ():
                ids[added["key"]["elements"][-1]] = added["contentId"]


def bring_back(
    target: Target,
    into: Branch,
    table: str,
    id: str,
    bring: Callable[[Target, Branch, Branch], bytes],
) -> Steps:
    """Create a branch, commit to it, bring the commit back by a merge or transplant, delete it."""
    for count in range(sys.maxsize):
        name = f"{into.name}-{count:06}"
        created = yield create_branch(target, name, into.hash), 0
        if not created:
            continue
        snapshot = FIRST_SNAPSHOT + count
        change = commit_table(target, name, into.hash, NAMESPACE, table, snapshot, f'"{id}"')
        committed = yield change, 0
        if not committed:
            continue
        head = _string_after(committed, b'"hash"', _HASH_CHARACTERS)
        brought = yield bring(target, Branch(name, head), into), 0
        if not brought:
            continue
        result = _string_after(brought, b'"resultantTargetHash"', _HASH_CHARACTERS)
        into = Branch(into.name, result)
        yield delete_branch(target, name, head), 1


def create_and_delete(target: Target, prefix: str, hash: str) -> Steps:
    for count in range(sys.maxsize):
        name = f"{prefix}-{count:06}"
        created = yield create_branch(target, name, hash), 0
        if created:
            yield delete_branch(target, name, hash), 1


def _decoded(response: bytes) -> Any:
    return json.decode(body_of(response))


def _string_after(response: bytes, name: bytes, length: int) -> str:
    """The value of a field, whether the JSON is compact or pretty."""
    start = response.index(b'"', response.index(name) + len(name)) + 1
    return response[start : start + length].decode()
