"""`morag admin purge`: removes the objects that no reference leads to."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from msgspec import json

from morag.backend.urls import open_backend
from morag.cli.purge_flags import add_purge_flags, purge_request
from morag.cli.purge_text import report_text
from morag.cli.transfer_flags import TransferProgress, add_output_flags, add_store_flags, store_of
from morag.versions.maintenance.journal import has_rows
from morag.versions.maintenance.purge import purge
from morag.versions.maintenance.rewriting import open_unused
from morag.versions.world import World

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from morag.versions.maintenance.purge import PurgeProgress

_HELP: Final = "Remove the objects that no reference leads to"
_STAGES: Final = {
    "mark": "commits read",
    "scan": "objects looked at",
    "sweep": "objects removed",
    "settle": "waiting",
}


def add_command(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "purge", help=_HELP, description=f"{_HELP}.", allow_abbrev=False
    )
    parser.set_defaults(command=_purge)
    add_purge_flags(parser, "on a disk that stays")
    add_store_flags(parser)
    add_output_flags(parser)


def _purge(arguments: argparse.Namespace) -> int:
    request = purge_request(arguments)
    url, settings = store_of(arguments)
    journal: Path = arguments.journal
    if request.dry_run and has_rows(journal):
        sys.stderr.write(
            f"morag: a purge was interrupted, and '{journal}' has objects that it removed; run "
            "this with --no-dry-run to complete it\n"
        )
    progress = TransferProgress(arguments.quiet)

    def show(step: PurgeProgress) -> None:
        progress.show(_STAGES[step.stage], step.rows)

    opened = open_backend(url, read_only=True) if request.dry_run else open_unused(url, settings)
    with closing(opened) as backend, progress:
        report = purge(backend, settings, World(), request, journal, show)
    sys.stdout.write(json.encode(report).decode() + "\n" if arguments.json else report_text(report))
    return 0
