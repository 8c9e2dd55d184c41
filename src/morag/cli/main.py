"""The command `morag`: finds the command that was asked for and runs it."""

from __future__ import annotations

import argparse
import re
import sys
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from morag.configuring import nearest
from morag.errors import MoragError
from morag.masking import masked

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: Final = {
    "serve": "Serve the catalog over HTTP",
    "spark": "Run jobs on Spark: read, diff, health, gc",
}
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


class Parser(argparse.ArgumentParser):
    """Asks what was meant, and repeats nothing that may be a password."""

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        given, unknown = self.parse_known_args(arguments)
        flags = [argument.partition("=")[0] for argument in unknown if argument.startswith("-")]
        if flags:  # Not what follows it: that would have been its value.
            known = [flag for action in self._actions for flag in action.option_strings]
            self.error(f"there is no flag {flags[0]}{nearest(flags[0], known)}")
        if unknown:
            self.error(f"unexpected {unknown[0]!r}: settings are given by flags")
        return given

    def error(self, message: str) -> NoReturn:
        super().error(_without_secrets(message))


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] not in COMMANDS:
        parser = _parser()
        parser.parse_args(arguments)  # Ends here, unless nothing was given at all.
        parser.print_help(sys.stderr)
        return MISUSED
    command: Command = import_module(f"morag.cli.{arguments[0]}")
    own = Parser(
        prog=f"morag {arguments[0]}",
        description=COMMANDS[arguments[0]] + ".",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.configure(own, explain=not {"-h", "--help"}.isdisjoint(arguments))
    try:
        return command.run(own.parse(arguments[1:]))
    except Misuse as problem:
        return _told(problem, MISUSED)
    except MoragError as problem:
        return _told(problem, FAILED)
    except KeyboardInterrupt:
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
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


def _without_secrets(text: str) -> str:
    """What looks like a password goes, also where a URL lacks its scheme."""
    shown = masked(text)
    return shown if "://" in shown else re.sub(r"(\w):\S+@", r"\1:***@", shown)


def _told(problem: Exception, code: int) -> int:
    sys.stderr.write(f"morag: {problem}\n")
    return code
