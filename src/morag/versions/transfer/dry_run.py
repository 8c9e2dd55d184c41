"""Checks a source before it is imported, and writes nothing."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from morag.errors import ArchiveInvalid
from morag.format.carried_rows import row_of_related
from morag.format.ids import NO_ANCESTOR
from morag.logic.commit_graph import CommitGraph, GraphCommit
from morag.versions.transfer.imported_commits import operations_of
from morag.versions.transfer.importing import ImportReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from morag.versions.transfer.sources import ImportSource


def rehearse(
    source: ImportSource, show: Callable[[str, int], None] = lambda stage, done: None
) -> ImportReport:
    """Read everything; raises `ArchiveInvalid` for what an import would refuse.

    Ids are not verified, because that needs the contents that commits inherit.
    """
    source.description()
    objects = 0
    for related in source.objects():
        row_of_related(related, 0)
        objects += 1
    with CommitGraph() as graph:
        graph.add(_commits(source, show))
        for parent in islice(graph.missing_parents(), 1):
            raise ArchiveInvalid(f"Commit {parent.hex()}, a parent of others, is not in the export")
        references = 0
        for ref in source.references():
            if ref.pointer != NO_ANCESTOR and ref.pointer not in graph:
                raise ArchiveInvalid(
                    f"Reference '{ref.name}' points to commit {ref.pointer.hex()}, which the "
                    "export does not have"
                )
            references += 1
        commits = len(graph)
    for _ in source.extras():
        pass
    return ImportReport(references=references, commits=commits, found=0, objects=objects, unfit=0)


def _commits(source: ImportSource, show: Callable[[str, int], None]) -> Iterator[GraphCommit]:
    for number, commit in enumerate(source.commits(ordered=False), 1):
        operations_of(commit)
        show("commits", number)
        yield GraphCommit(commit.id, commit.parent, commit.seq, commit.merge_parents)
