"""The command `morag`: finds the command that was asked for and runs it."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Protocol

from morag.errors import MoragError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: Final = {"serve": "Serve the catalog over HTTP"}
"""Each is a module of this package; only the one that runs is imported."""

FAILED: Final = 1
MISUSED: Final = 2


class Command(Protocol):
    """What a module of this package offers."""

    def configure(self, parser: argparse.ArgumentParser, explain: bool) -> None:
        """Declare the flags; `explain` says whether anybody is going to read about them."""
        ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; the exit code. MoragError is told and ends with FAILED."""
        ...


class Misuse(Exception):
    """A command line, or settings, that cannot be right. Nothing was started."""


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] not in COMMANDS:
        parser = _parser()
        parser.parse_args(arguments)  # Ends here, unless nothing was given at all.
        parser.print_help(sys.stderr)
        return MISUSED
    command: Command = import_module(f"morag.cli.{arguments[0]}")
    own = argparse.ArgumentParser(
        prog=f"morag {arguments[0]}",
        description=COMMANDS[arguments[0]] + ".",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.configure(own, explain=not {"-h", "--help"}.isdisjoint(arguments))
    try:
        return command.run(own.parse_args(arguments[1:]))
    except Misuse as problem:
        return _told(problem, MISUSED)
    except MoragError as problem:
        return _told(problem, FAILED)
    except KeyboardInterrupt:
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="morag",
        description="A Git-like, transactional catalog for data lakes.",
        epilog="`morag COMMAND --help` explains a command.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"morag {version('morag')}")
    commands = parser.add_subparsers(metavar="COMMAND")
    for name, purpose in COMMANDS.items():
        commands.add_parser(name, help=purpose)
    return parser


def _told(problem: Exception, code: int) -> int:
    sys.stderr.write(f"morag: {problem}\n")
    return code
