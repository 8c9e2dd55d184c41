"""`morag export`: writes a repository to files, in Nessie's format."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import json

from morag.backend.urls import open_backend
from morag.cli.main import Misuse
from morag.cli.transfer_flags import (
    TransferProgress,
    add_check_flag,
    add_output_flags,
    add_store_flags,
    exit_code,
    store_of,
)
from morag.versions.transfer.archive_writing import new_archive
from morag.versions.transfer.exporting import ExportOptions, export
from morag.versions.world import World

if TYPE_CHECKING:
    from morag.versions.transfer.exporting import ExportReport


def configure(parser: argparse.ArgumentParser, explain: bool) -> None:
    parser.usage = "%(prog)s PATH [--store URL] [--refs GLOB ...] [--current BRANCH] [...]"
    parser.epilog = (
        "Servers may go on meanwhile: commits that are made after the start are left out.\n"
        "Exit codes: 0, 1 failed, 2 misuse, 3 damaged data, 4 no repository."
    )
    parser.add_argument(
        "path", metavar="PATH", type=Path, help="A new directory, or a new file like catalog.zip"
    )
    add_store_flags(parser)
    parser.add_argument(
        "--format", choices=("zip", "directory"), help="[zip if PATH ends in .zip, else directory]"
    )
    parser.add_argument(
        "--max-file-bytes", type=_bytes, metavar="N", help="Start a new data file after this size"
    )
    parser.add_argument(
        "--refs",
        nargs="+",
        action="extend",
        default=[],
        metavar="GLOB",
        help="Only references with such names, like main 'release/*' [all]",
    )
    parser.add_argument(
        "--current",
        metavar="BRANCH",
        help="Only the current contents of this branch, without its history",
    )
    parser.add_argument(
        "--version",
        type=int,
        choices=(2, 3),
        default=3,
        help="The version of the format; old versions of Nessie read only 2 [%(default)s]",
    )
    add_check_flag(
        parser,
        "Verify the ids of all commits, also against their parents; with =strict, an id that "
        "does not fit ends the export",
    )
    add_output_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.current is not None and arguments.refs:
        raise Misuse("--current names the one reference to export; leave out --refs")
    url, settings = store_of(arguments)
    options = ExportOptions(
        version=arguments.version,
        references=tuple(arguments.refs),
        current=arguments.current,
        check=arguments.check is not None,
        strict=arguments.check == "strict",
    )
    progress = TransferProgress(arguments.quiet)
    codes: list[int] = []
    with exit_code(codes), closing(open_backend(url, read_only=True)) as backend:
        archive = new_archive(arguments.path, arguments.format, arguments.max_file_bytes)
        with archive, progress:
            report = export(
                backend, settings, World(), archive, options, version("morag"), progress.show
            )
        if arguments.json:
            sys.stdout.write(json.encode(report).decode() + "\n")
        else:
            sys.stdout.write(export_text(report, arguments.path, progress.seconds))
    return codes[0] if codes else 0


def export_text(report: ExportReport, path: Path, seconds: float) -> str:
    rate = report.commits / max(seconds, 0.001)
    lines = [
        f"exported to {path}",
        f"  {report.references:,} references",
        f"  {report.commits:,} commits ({rate:,.0f}/s)",
        f"  {report.objects:,} other objects",
    ]
    if report.unproven:
        lines += [
            f"  {report.unproven:,} commits have ids that could not be verified, such as",
            *(f"    {id}" for id in report.unproven_ids[:3]),
        ]
    return "\n".join(lines) + "\n"


def _bytes(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes")
    return int(text)
