"""`morag admin check`: one commit, or a whole store without Spark."""

from __future__ import annotations

import re
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from msgspec import json

import morag
from morag.backend.urls import open_backend
from morag.cli.transfer_flags import PROBLEMS_FOUND, add_output_flags, add_store_flags, store_of
from morag.versions.maintenance.checking import WholeCheck
from morag.versions.world import World

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from morag.config import Settings
    from morag.logic.findings import Finding

_HASH: Final = re.compile("[0-9a-fA-F]{64}")


def add_command(commands: Any) -> None:
    help = "Find damaged and missing objects"
    parser = commands.add_parser("check", help=help, description=f"{help}.", allow_abbrev=False)
    parser.set_defaults(command=_check)
    parser.add_argument(
        "commit",
        metavar="REF-OR-COMMIT",
        nargs="?",
        help="Check only this commit: like main, main~2 or a hash [the whole store]",
    )
    add_store_flags(parser)
    add_output_flags(parser)


def _check(arguments: argparse.Namespace) -> int:
    url, settings = store_of(arguments)
    if arguments.commit is not None:
        return _check_commit(arguments, url, settings)
    with closing(open_backend(url, read_only=True)) as backend:
        check = WholeCheck(backend, settings, World())
        found = _print(check.findings(), arguments.json)
    totals = check.totals
    if not arguments.quiet:
        sys.stderr.write(
            f"checked {sum(totals.objects.values()):,} objects, {totals.commits:,} commits "
            f"({totals.reachable:,} of them on references), {totals.references:,} references: "
            f"{_counted(found)}\n"
        )
    return PROBLEMS_FOUND if found else 0


def _check_commit(arguments: argparse.Namespace, url: str, settings: Settings) -> int:
    spec: str = arguments.commit
    if _HASH.fullmatch(spec):
        spec = f"@{spec}"
    with morag.open(url, settings, read_only=True) as repository:
        status = repository.history.check(spec)
    found = _print(status.findings, arguments.json)
    if not arguments.quiet:
        sys.stderr.write(f"checked commit {status.id.hex()}: {_counted(found)}\n")
    return PROBLEMS_FOUND if found else 0


def _print(findings: Iterable[Finding], as_json: bool) -> int:
    count = 0
    for finding in findings:
        count += 1
        sys.stdout.write(_json(finding) if as_json else _line(finding))
    return count


def _json(finding: Finding) -> str:
    """The same columns as `morag spark fsck` has."""
    shown = {
        "id": finding.id.hex(),
        "kind": finding.kind,
        "problem": finding.problem,
        "role": finding.role,
        "needed_by": finding.needed_by,
    }
    return json.encode({name: value or None for name, value in shown.items()}).decode() + "\n"


def _line(finding: Finding) -> str:
    named = " ".join(part for part in (finding.kind, finding.id.hex()) if part)
    if not finding.needed_by:
        return f"{named}: {finding.problem}\n"
    if not finding.role:
        return f"{finding.kind} {finding.needed_by}: {finding.problem}\n"
    return f"{named}: {finding.problem} ({finding.role} of {finding.needed_by})\n"


def _counted(found: int) -> str:
    return "no problems" if not found else f"{found:,} problem{'s' if found > 1 else ''}"
