"""`morag admin`: looks after a repository, directly in its store."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from msgspec import json

import morag
from morag.backend.urls import StoreUrl, open_backend
from morag.cli import admin_check, admin_purge
from morag.cli.main import FAILED
from morag.cli.transfer_flags import (
    add_output_flags,
    add_store_flags,
    exit_code,
    repository_name,
    store_of,
)
from morag.versions.maintenance.info import repository_info
from morag.versions.maintenance.rewriting import cut, open_unused, recreate
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.logic.history_cut import HistoryCut
    from morag.versions.maintenance.info import RepositoryInfo

_RESTART: Final = "restart all servers on this store: they still have the old commits in memory\n"


def configure(parser: argparse.ArgumentParser, explain: bool) -> None:
    parser.epilog = (
        "docs/maintenance.md explains the commands.\n"
        "Exit codes: 0, 1 failed, 2 misuse, 3 problems found, 4 no repository."
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_info(_added(commands, "info", "Show the facts about a repository"))
    admin_check.add_command(commands)
    admin_purge.add_command(commands)
    _add_erase(_added(commands, "erase", "Remove a repository from its store"))
    _add_cut(_added(commands, "cut-history", "Remove the ancestors of a commit from its history"))


def run(arguments: argparse.Namespace) -> int:
    command: Callable[[argparse.Namespace], int] = arguments.command
    codes: list[int] = []
    with exit_code(codes):
        codes.append(command(arguments))
    return codes[0]


def _added(commands: Any, name: str, help: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help, description=f"{help}.", allow_abbrev=False
    )
    add_store_flags(parser)
    add_output_flags(parser)
    return parser


# info


def _add_info(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=_info)


def _info(arguments: argparse.Namespace) -> int:
    url, settings = store_of(arguments)
    with morag.open(url, settings, read_only=True) as repository:
        info = repository_info(StoreUrl.parse(url), repository)
    sys.stdout.write(_encoded(info) if arguments.json else _info_text(info))
    return 0


def _info_text(info: RepositoryInfo) -> str:
    lines = {
        "store": info.store,
        "store type": info.store_type,
        "repository id": info.repository_id or "(empty)",
        "created": info.created,
        "oldest commit time": info.oldest_possible_commit,
        "imported": info.imported,
        "default branch": info.default_branch,
        "  head": info.head,
        "  commits": f"{info.commits:,}",
        "references": f"{info.references:,}",
        "parents per commit": info.parents_per_commit,
        "index in commits": f"{info.max_incremental_index_bytes:,} bytes",
        "index segments": f"{info.max_index_segment_bytes:,} bytes",
    }
    return "".join(
        f"{name + ':':20}{value}\n" for name, value in lines.items() if value is not None
    )


# erase


def _add_erase(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=_erase)
    parser.add_argument(
        "--confirm",
        metavar="NAME",
        help="The repository id, or the last part of the store's URL if the id is empty",
    )
    parser.add_argument(
        "--recreate", action="store_true", help="Create a new, empty repository afterwards"
    )


def _erase(arguments: argparse.Namespace) -> int:
    url, settings = store_of(arguments)
    shown, name = StoreUrl.parse(url), repository_name(url, settings)
    if arguments.confirm != name:
        sys.stderr.write(
            f"morag: this removes the repository '{name}' in {shown}, with all references, commits "
            f"and contents; nothing was changed. To do it, add: --confirm {name}\n"
        )
        return FAILED
    branch = None
    with closing(open_unused(url, settings)) as backend:
        backend.erase(settings.repository_id)
        if arguments.recreate:
            branch = recreate(backend, settings, World())
    if arguments.json:
        sys.stdout.write(_encoded({"erased": name, "default_branch": branch}))
    else:
        sys.stdout.write(f"erased the repository '{name}' in {shown}\n")
        if branch is not None:
            sys.stdout.write(f"created a new one with the empty branch '{branch}'\n")
    return 0


# cut-history


def _add_cut(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=_cut)
    parser.add_argument("commit", metavar="COMMIT", help="The hash of the commit that stays")
    parser.add_argument(
        "--dry-run",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="Only count the changes; --no-dry-run makes them [%(default)s]",
    )


def _cut(arguments: argparse.Namespace) -> int:
    url, settings = store_of(arguments)
    dry_run = arguments.dry_run
    opened = open_backend(url, read_only=True) if dry_run else open_unused(url, settings)
    with closing(opened) as backend:
        done = cut(backend, settings, World(), arguments.commit, dry_run=dry_run)
    if arguments.json:
        sys.stdout.write(
            _encoded(
                {
                    "commit": done.id.hex(),
                    "removed_parents": [id.hex() for id in done.parents],
                    "shortened_tails": done.shortened,
                    "dry_run": dry_run,
                }
            )
        )
    else:
        sys.stdout.write(_cut_text(done, not dry_run))
    if not dry_run:
        sys.stderr.write(_RESTART)
    return 0


def _cut_text(done: HistoryCut, is_done: bool) -> str:
    if not done.parents and not done.shortened:
        return f"the history was cut at {done.id.hex()} before: there is nothing to do\n"
    parents = " and ".join(id.hex() for id in done.parents) or "which it lost before"
    lines = [
        f"commit {done.id.hex()}",
        f"  parents that it {'lost' if is_done else 'would lose'}: {parents}",
        f"  later commits whose tails {'were' if is_done else 'would be'} shortened: "
        f"{done.shortened:,}",
    ]
    lines.append(
        "`morag admin purge` removes the ancestors that no reference leads to"
        if is_done
        else "nothing was changed; stop all servers on this store and add --no-dry-run to do it"
    )
    return "\n".join(lines) + "\n"


def _encoded(value: object) -> str:
    return json.encode(value).decode() + "\n"
