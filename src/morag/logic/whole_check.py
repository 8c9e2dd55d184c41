"""Checks a whole store in one process; `spark/fsck.py` does the same on many.

Ids and pointers are kept in temporary files, so that memory does not grow with the store.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import RepositoryCorrupt
from morag.format.records import ObjId
from morag.logic.commit_graph import CommitGraph
from morag.logic.findings import REFERENCE, Finding, kind_name
from morag.logic.line_check import LineToCheck, check_line, readable_commits
from morag.logic.pointer_checks import ROLES, Pointer, Present, Role, judged
from morag.logic.reference_check import ReferenceCheck, confirmed_reference, reference_of
from morag.logic.store_check import MISSING, examined
from morag.temporary_database import temporary_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from morag.format.records import Row
    from morag.persist.persist import Persist

COMMITS_IN_A_LINE: Final = 1000
_AT_ONCE: Final = 10_000
_MOST_ROUNDS: Final = 1000
_SCHEMA: Final = """
    CREATE TABLE present (id BLOB PRIMARY KEY, kind TEXT, detail BLOB) WITHOUT ROWID;
    CREATE TABLE pointers (
        target BLOB, role TEXT, detail BLOB, source BLOB, PRIMARY KEY (target, role, detail)
    ) WITHOUT ROWID;
"""
_JOINED: Final = """
    SELECT target, source, role, pointers.detail, kind, present.detail
    FROM pointers LEFT JOIN present ON present.id = pointers.target ORDER BY target
"""


class Totals(Struct):
    """The numbers of objects that a check has seen."""

    objects: Counter[str]
    commits: int = 0
    reachable: int = 0
    references: int = 0
    not_understood: int = 0


def check_store(
    persist: Persist,
    scan: Callable[[], Iterable[Row]],
    totals: Totals,
) -> Iterator[Finding]:
    """Everything that is wrong in the store. `scan` gives all its rows.

    `persist` has no `refutes`: commits are checked here. Servers may go on: references are read
    before the scan, so all that they lead to is seen, and doubtful findings are checked again.
    """
    references = ReferenceCheck(persist)
    totals.references = references.count
    with CommitGraph() as graph, PointerTable() as table:
        for finding in _scanned(scan(), references, graph, table, totals):
            yield from confirmed(persist, finding)
        table.add(references.pointers)
        names_are_damaged = False
        for line in lines_to_check(persist, graph, references.heads, COMMITS_IN_A_LINE):
            totals.commits += line.count
            totals.reachable += line.reachable
            pointers = []
            for found in check_line(persist, line):
                if isinstance(found, Pointer):
                    pointers.append(found)
                else:
                    names_are_damaged |= found.id == references.names_commit
                    yield found
            table.add(pointers)
        # Without intact names nothing is known about the references that they may be missing.
        for finding in references.findings if not names_are_damaged else ():
            yield from confirmed(persist, finding)
        for finding in table.judged():
            yield from confirmed(persist, finding)


def _scanned(
    rows: Iterable[Row],
    references: ReferenceCheck,
    graph: CommitGraph,
    table: PointerTable,
    totals: Totals,
) -> Iterator[Finding]:
    rows = iter(rows)
    while some := list(islice(rows, _AT_ONCE)):
        all = [examined(row) for row in some]
        totals.objects.update(kind_name(row.kind) for row in some)
        table.add_present(each.present for each in all if each.present is not None)
        graph.add(each.commit for each in all if each.commit is not None)
        references.add_unnamed(each.reference for each in all if each.reference)
        yield from (each.finding for each in all if each.finding is not None)


def lines_to_check(
    persist: Persist, graph: CommitGraph, heads: Iterable[ObjId], most: int
) -> Iterator[LineToCheck]:
    """All commits in lines of at most `most`. Marks the commits that the heads lead to.

    If a commit is missing, the tails of its children lead to its ancestors.
    """
    graph.mark(heads)
    for _ in range(_MOST_ROUNDS):
        beyond = _beyond_missing(persist, graph) if any(graph.missing()) else []
        if not beyond:
            break
        graph.mark(beyond)
    for line in graph.lines(most):
        low, high = 0, len(line.commits)
        if graph.is_marked(line.commits[-1].id):
            low = high
        while low < high:  # The parent of a marked commit is marked, too.
            middle = (low + high) // 2
            if graph.is_marked(line.commits[middle].id):
                low = middle + 1
            else:
                high = middle
        yield LineToCheck(line.commits[-1].id, len(line.commits), low)


def _beyond_missing(persist: Persist, graph: CommitGraph) -> list[ObjId]:
    """Ancestors of marked commits whose parents are missing, as far as they are not marked."""
    orphans = [
        line.commits[0].id
        for line in graph.lines(COMMITS_IN_A_LINE)
        if line.parent not in graph and graph.is_marked(line.commits[0].id)
    ]
    tails = [commit.tail[1:] for commit in readable_commits(persist, orphans).values()]
    return [id for tail in tails for id in tail if id in graph and not graph.is_marked(id)]


def confirmed(persist: Persist, finding: Finding) -> Iterator[Finding]:
    """The finding, with the name of its reference, unless it was only temporary."""
    if finding.kind == REFERENCE and not finding.role:
        still = confirmed_reference(persist, finding)
        if still is not None:
            yield still
        return
    try:
        row = persist.find([finding.id]).get(finding.id)
    except RepositoryCorrupt:
        yield finding
        return
    if finding.problem == MISSING and row is not None:
        damage = examined(row).finding
        if damage is not None:
            yield damage
        return
    if finding.role in (Role.HEAD.words, Role.TAG.words):
        source = ObjId(bytes.fromhex(finding.needed_by)) if finding.needed_by else finding.id
        name = reference_of(persist, source)
        yield Finding(finding.id, finding.problem, finding.kind, finding.role, name)
    else:
        yield finding


class PointerTable:
    """Objects and pointers in a temporary file, which is deleted when the table is closed."""

    def __init__(self) -> None:
        self._db = temporary_database(_SCHEMA)

    def add_present(self, objects: Iterable[Present]) -> None:
        rows = [(each.id, each.kind, each.detail) for each in objects]
        self._db.execute("BEGIN")
        self._db.executemany("INSERT OR IGNORE INTO present VALUES (?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def add(self, pointers: Iterable[Pointer]) -> None:
        rows = [(p.target, p.role.letter, p.detail, p.source) for p in pointers]
        self._db.execute("BEGIN")
        self._db.executemany("INSERT OR IGNORE INTO pointers VALUES (?, ?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def judged(self) -> Iterator[Finding]:
        """One finding for each object that is missing or wrong."""
        reported = None
        for target, source, role, stated, kind, detail in self._db.execute(_JOINED):
            if target == reported:
                continue
            pointer = Pointer(ObjId(target), ObjId(source), ROLES[role], stated)
            finding = judged(pointer, kind, detail or b"")
            if finding is not None:
                reported = target if kind is None else None
                yield finding

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> PointerTable:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
