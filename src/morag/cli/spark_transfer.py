"""`morag spark export` and `morag spark import`: whole repositories, for millions of commits."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import json

from morag.cli.export import export_text
from morag.cli.importing import add_erase_flags, check_erase_flags, import_text
from morag.cli.main import Misuse
from morag.cli.spark_checks import check_store
from morag.cli.spark_flags import (
    add_flags,
    add_store_flags,
    progress_output,
    session_of,
    store_origin_of,
)
from morag.cli.transfer_flags import add_check_flag, exit_code
from morag.versions.maintenance.rewriting import check_unused
from morag.versions.transfer.archive import ArchiveReader
from morag.versions.transfer.archive_writing import format_of

if TYPE_CHECKING:
    import argparse


def add_jobs(jobs: Any) -> None:
    _add_export(jobs)
    _add_import(jobs)


def _add_export(jobs: Any) -> None:
    parser: argparse.ArgumentParser = jobs.add_parser(
        "export",
        help="Write a repository to files, one data file per task",
        description="Write a repository in a store to the files of `morag export`, or to Parquet. "
        "The driver and all executors must reach PATH and the store. Servers may go on meanwhile.",
        epilog="Exit codes: 0, 1 failed, 2 misuse, 3 damaged data, 4 no repository.",
        allow_abbrev=False,
    )
    parser.set_defaults(job=_export)
    parser.add_argument("path", metavar="PATH", type=Path, help="A new directory")
    add_store_flags(parser)
    parser.add_argument(
        "--refs",
        nargs="+",
        action="extend",
        default=[],
        metavar="GLOB",
        help="Only references with such names, like main 'release/*' [all]",
    )
    parser.add_argument(
        "--layout",
        choices=("files", "parquet"),
        default="files",
        help="files: to be imported again, also by Nessie; parquet: tables for queries [files]",
    )
    parser.add_argument(
        "--file-commits", type=_number, metavar="N", help="The commits of one data file"
    )
    parser.add_argument("--json", action="store_true", help="Print the result as JSON")
    add_flags(parser, catalog=False)


def _add_import(jobs: Any) -> None:
    parser: argparse.ArgumentParser = jobs.add_parser(
        "import",
        help="Fill an empty store from an export, with indexes completed side by side",
        description="Fill an empty store from an export in a directory, or from a ZIP file, which "
        "is unpacked beside it first. The driver and all executors must reach both.",
        epilog="Servers refuse the store until the import has ended. After an interruption, run "
        "the same command with --resume. Exit codes: 0, 1 failed, 2 misuse, 3 damaged files, 100 "
        "the repository exists.",
        allow_abbrev=False,
    )
    parser.set_defaults(job=_import)
    parser.add_argument("path", metavar="PATH", type=Path, help="A directory or a ZIP file")
    add_store_flags(parser)
    add_erase_flags(parser)
    add_check_flag(
        parser,
        "List commits whose ids do not fit their content; with =strict, such a commit ends the "
        "import",
    )
    parser.add_argument(
        "--group-commits",
        type=_number,
        metavar="N",
        help="About how many commits are the work of one task [1,000 to 10,000]",
    )
    parser.add_argument("--json", action="store_true", help="Print the result as JSON")
    add_flags(parser, catalog=False)


def _export(arguments: argparse.Namespace) -> int:
    origin = store_origin_of(arguments)
    if format_of(arguments.path) == "zip":
        raise Misuse(
            "executors write data files side by side, which one ZIP file does not allow: name a "
            "directory, and pack it afterwards"
        )
    if arguments.layout == "parquet" and arguments.file_commits is not None:
        raise Misuse("--file-commits belongs to --layout files")
    path: Path = arguments.path
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise Misuse(f"'{path}' exists already; name a new directory, or remove its files")
    codes: list[int] = []
    with exit_code(codes):
        check_store(origin)
    if codes:
        return codes[0]
    with (
        exit_code(codes),
        session_of(arguments) as spark,
        progress_output(arguments) as progress,
    ):
        from morag.spark import transfer

        started = time.monotonic()
        if arguments.layout == "parquet":
            report = transfer.export_tables(
                spark, origin, str(arguments.path), references=arguments.refs, progress=progress
            )
        else:
            report = transfer.export_repository(
                spark,
                origin,
                str(arguments.path),
                references=arguments.refs,
                file_commits=arguments.file_commits,
                progress=progress,
            )
        text = export_text(report, arguments.path, time.monotonic() - started)
        sys.stdout.write(json.encode(report).decode() + "\n" if arguments.json else text)
    return codes[0] if codes else 0


def _import(arguments: argparse.Namespace) -> int:
    origin = store_origin_of(arguments)
    codes: list[int] = []
    with exit_code(codes):
        from morag.spark.transfer.stores import settings_of

        assert origin.store is not None, "the origin of a job on a store has a store"
        check_erase_flags(arguments, origin.store, settings_of(origin))
        if arguments.erase:
            check_unused(origin.store)
        with ArchiveReader(arguments.path):
            pass  # Before Java starts.
        with session_of(arguments) as spark, progress_output(arguments) as progress:
            from morag.spark.transfer import import_repository

            started = time.monotonic()
            report = import_repository(
                spark,
                origin,
                str(arguments.path),
                resume=arguments.resume,
                erase=arguments.erase,
                strict=arguments.check == "strict",
                group_commits=arguments.group_commits,
                progress=progress,
            )
        seconds = time.monotonic() - started
        done = f"imported from {arguments.path}"
        text = import_text(report, done, seconds, arguments.check is not None)
        sys.stdout.write(json.encode(report).decode() + "\n" if arguments.json else text)
    return codes[0] if codes else 0


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number of commits")
    return int(text)
