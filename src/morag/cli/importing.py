"""`morag import`: fills an empty store from an export, or from a running server."""

from __future__ import annotations

import sys
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import json

from morag.backend.urls import open_backend
from morag.cli.main import Misuse
from morag.cli.pulling import add_pull_flags, check_pull_flags, pulled_source
from morag.cli.transfer_flags import (
    TransferProgress,
    add_check_flag,
    add_output_flags,
    add_store_flags,
    exit_code,
    repository_name,
    store_of,
)
from morag.versions.maintenance.rewriting import check_unused
from morag.versions.transfer.archive import ArchiveReader
from morag.versions.transfer.dry_run import rehearse
from morag.versions.transfer.importing import Importer, ImportOptions
from morag.versions.transfer.sources import ArchiveSource
from morag.versions.world import World

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from morag.config import Settings
    from morag.versions.transfer.importing import ImportReport
    from morag.versions.transfer.sources import ImportSource


def configure(parser: argparse.ArgumentParser, explain: bool) -> None:
    parser.usage = (
        "%(prog)s (PATH | --from URI) [--store URL] [--resume | --erase --confirm NAME] [...]"
    )
    parser.epilog = (
        "Servers refuse the store until the import has ended. After an interruption, run the same\n"
        "command with --resume.\n"
        "Exit codes: 0, 1 failed, 2 misuse, 3 damaged files, 100 the repository exists."
    )
    parser.add_argument(
        "path", metavar="PATH", type=Path, nargs="?", help="A directory or a ZIP file"
    )
    add_pull_flags(parser)
    add_store_flags(parser)
    add_erase_flags(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="Only check the source; the store is not opened"
    )
    add_check_flag(
        parser,
        "List commits whose ids do not fit their content; with =strict, such a commit ends the "
        "import",
    )
    add_output_flags(parser)


def add_erase_flags(parser: argparse.ArgumentParser) -> None:
    """The flags for a repository that exists: what was imported of it, or all of it."""
    parser.add_argument(
        "--resume", action="store_true", help="Go on with an import that was interrupted"
    )
    parser.add_argument(
        "--erase", action="store_true", help="Erase the repository first; needs --confirm"
    )
    parser.add_argument(
        "--confirm",
        metavar="NAME",
        help="The repository id, or the last part of the store's URL if the id is empty",
    )


def run(arguments: argparse.Namespace) -> int:
    url, settings = store_of(arguments)
    _check(arguments, url, settings)
    options = ImportOptions(
        resume=arguments.resume, erase=arguments.erase, strict=arguments.check == "strict"
    )
    codes: list[int] = []
    progress = TransferProgress(arguments.quiet)
    with exit_code(codes), progress, _source(arguments, progress) as source:
        progress.expect("commits", source.commit_count)
        if arguments.dry_run:
            report = rehearse(source, progress.show)
        else:
            if arguments.erase:  # Not for a source that cannot be imported.
                check_unused(url)
                rehearse(source, progress.show)
            with closing(open_backend(url)) as backend:
                importer = Importer(backend, settings, World(), options, progress.show)
                report = importer.run(source)
        progress.end()
        if arguments.json:
            sys.stdout.write(json.encode(report).decode() + "\n")
        else:
            seconds = progress.seconds
            done = (
                "checked, nothing was written"
                if arguments.dry_run
                else f"imported from {arguments.uri or arguments.path}"
            )
            sys.stdout.write(import_text(report, done, seconds, arguments.check is not None))
    return codes[0] if codes else 0


@contextmanager
def _source(arguments: argparse.Namespace, progress: TransferProgress) -> Iterator[ImportSource]:
    if arguments.uri is not None:

        def show(stage: str, read: int) -> None:
            progress.expect("commits", read)
            progress.show(stage, read)

        with pulled_source(arguments, World().sleep, show) as server:
            yield server
    else:
        with ArchiveReader(arguments.path) as archive:
            yield ArchiveSource(archive)


def _check(arguments: argparse.Namespace, url: str, settings: Settings) -> None:
    check_pull_flags(arguments)
    check_erase_flags(arguments, url, settings)


def check_erase_flags(arguments: argparse.Namespace, url: str, settings: Settings) -> None:
    """Refuse to erase a repository without its name."""
    if arguments.resume and arguments.erase:
        raise Misuse("--resume keeps what was imported, and --erase removes it; choose one")
    if arguments.erase:
        name = repository_name(url, settings)
        if arguments.confirm != name:
            raise Misuse(
                f"--erase removes the repository '{name}' and all its history; to do that, add "
                f"--confirm {name}"
            )
    elif arguments.confirm is not None:
        raise Misuse("--confirm belongs to --erase")


def import_text(report: ImportReport, done: str, seconds: float, lists_unfit: bool) -> str:
    rate = report.commits / max(seconds, 0.001)
    lines = [
        done,
        f"  {report.references:,} references",
        f"  {report.commits:,} commits ({rate:,.0f}/s)",
        f"  {report.objects:,} other objects",
    ]
    if report.found:
        lines.append(f"  {report.found:,} of the commits were stored before")
    if report.unfit:
        lines.append(f"  {report.unfit:,} commits have ids that do not fit, and were kept")
        if lists_unfit:
            lines += [f"    {id}" for id in report.unfit_ids]
    return "\n".join(lines) + "\n"
