"""`morag spark purge` and `copy`: jobs on the rows of a store."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from msgspec import json, to_builtins

from morag.backend.urls import StoreUrl
from morag.cli.main import Misuse
from morag.cli.purge_flags import add_purge_flags, purge_request
from morag.cli.purge_text import report_text
from morag.cli.spark_checks import check_store, misuse
from morag.cli.spark_flags import (
    add_flags,
    add_store_flags,
    progress_output,
    session_of,
    store_origin_of,
)
from morag.cli.spark_reports import PROBLEMS_FOUND

if TYPE_CHECKING:
    from morag.spark.opening import Origin

_SHOWN: Final = 100


def add_jobs(jobs: Any) -> None:
    _add_purge(_job(jobs, "purge", "Remove the objects that no reference leads to"))
    _add_copy(_job(jobs, "copy", "Copy a repository into another store"))


def _job(jobs: Any, name: str, help: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = jobs.add_parser(
        name, help=help, description=f"{help}.", allow_abbrev=False
    )
    return parser


def _add_purge(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(job=_purge)
    add_purge_flags(parser, "which the driver and all executors reach")
    add_store_flags(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_flags(parser, catalog=False)


def _purge(arguments: argparse.Namespace) -> int:
    request = purge_request(arguments)
    origin = store_origin_of(arguments)
    check_store(origin)
    with session_of(arguments) as spark, progress_output(arguments) as progress:
        from morag.spark.purge import run

        report = run(spark, origin, request, journal=arguments.journal, progress=progress)
    shown = json.encode(to_builtins(report)).decode() + "\n"
    sys.stdout.write(shown if arguments.json else report_text(report))
    return 0


def _add_copy(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(job=_copy)
    parser.add_argument("source", metavar="SRC-URL", help="the store to read: rocksdb:./morag-data")
    parser.add_argument(
        "target",
        metavar="DST-URL",
        help="the store to fill, without the repository, like postgresql://morag@db/catalog; or "
        "one with an interrupted copy, to complete it",
    )
    parser.add_argument("--repository-id", metavar="ID", default="", help="in the source")
    parser.add_argument(
        "--target-repository-id", metavar="ID", help="in the target [the same as in the source]"
    )
    parser.add_argument(
        "--check",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="check the whole copy at the end, as `morag spark fsck` does [yes]",
    )
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    add_flags(parser, catalog=False)


def _copy(arguments: argparse.Namespace) -> int:
    source = _store(arguments.source, arguments.repository_id)
    own = arguments.target_repository_id
    target = _store(arguments.target, arguments.repository_id if own is None else own)
    check_store(source)
    with session_of(arguments) as spark, progress_output(arguments) as progress:
        from morag.spark.copy import copy

        done = copy(spark, source, target, check=arguments.check, progress=progress)
        findings = [] if done.findings is None else done.findings.limit(_SHOWN).collect()
    numbers = {
        "rows": done.rows,
        "size_bytes": done.size_bytes,
        "parts": done.parts,
        "skipped_parts": done.skipped_parts,
        "references": done.references,
        "log_lines": done.log_lines,
        "is_checked": arguments.check,
        "is_intact": not findings if arguments.check else None,
    }
    sys.stdout.write(
        json.encode(numbers).decode() + "\n" if arguments.json else _copy_text(numbers)
    )
    for row in findings:
        sys.stderr.write(f"morag: {row.kind} {row.id}: {row.problem}\n")
    return PROBLEMS_FOUND if findings else 0


def _copy_text(numbers: dict[str, Any]) -> str:
    text = (
        "copied {rows:,} objects of {size_bytes:,} bytes, {references:,} references and "
        "{log_lines:,} lines of the ref-log\n"
    ).format(**numbers)
    if numbers["skipped_parts"]:
        text += "an earlier job had copied {skipped_parts} of {parts} parts\n".format(**numbers)
    if not numbers["is_checked"]:
        return text + "not checked; `morag spark fsck` does that\n"
    return text + ("the copy is intact\n" if numbers["is_intact"] else "the copy is damaged:\n")


def _store(url: str, repository_id: str) -> Origin:
    from morag.spark.opening import Origin

    if url.startswith(("http://", "https://")):
        raise Misuse(
            "a copy works on the rows of stores, which no server exposes; `morag import --from "
            f"{url}` fills a store from a server"
        )
    with misuse():
        StoreUrl.parse(url).traits  # noqa: B018 - It raises an error for an unknown scheme.
        return Origin(store=url, repository_id=repository_id)
