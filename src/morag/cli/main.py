"""The program `morag`: finds the requested command and runs it."""

from __future__ import annotations

import argparse
import re
import sys
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from morag.config_sources import nearest
from morag.errors import MoragError
from morag.masking import masked

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: Final = {
    "admin": "Look after a repository: info, check, purge, erase, cut-history",
    "bench": "Measure a server under load",
    "export": "Write a repository to files, in Nessie's format",
    "generate": "Fill a catalog with generated contents, and measure it",
    "import": "Fill an empty store from an export, or from a running server",
    "serve": "Serve the catalog over HTTP",
    "spark": "Run jobs on Spark: read, diff, health, gc, export, import, fsck, ...",
}
"""Each command is a module of this package, imported only when it runs."""

_MODULES: Final = {"import": "importing"}  # A module cannot have the name of a keyword.

FAILED: Final = 1
MISUSED: Final = 2


class Command(Protocol):
    """The interface of a command module."""

    def configure(self, parser: argparse.ArgumentParser, explain: bool) -> None:
        """Declare the flags. `explain` is true if help texts will be shown."""
        ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Run and return the exit code. A MoragError is printed and exits with FAILED."""
        ...


class Misuse(Exception):
    """A wrong command line or setting. Nothing was started."""


class Parser(argparse.ArgumentParser):
    """Suggests the nearest flag, and prints nothing that may be a password."""

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        given, unknown = self.parse_known_args(arguments)
        flags = [argument.partition("=")[0] for argument in unknown if argument.startswith("-")]
        if flags:  # Name the flag alone: the argument after it may be its value.
            known = [flag for action in self._actions for flag in action.option_strings]
            self.error(f"there is no flag {flags[0]}{nearest(flags[0], known, '--')}")
        if unknown:
            self.error(f"unexpected {unknown[0]!r}: settings are given by flags")
        return given

    def error(self, message: str) -> NoReturn:
        super().error(_without_secrets(message))


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if not arguments or arguments[0] not in COMMANDS:
        parser = _parser()
        parser.parse_args(arguments)  # Exits, unless there are no arguments.
        parser.print_help(sys.stderr)
        return MISUSED
    command: Command = import_module(f"morag.cli.{_MODULES.get(arguments[0], arguments[0])}")
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
        return _report(problem, MISUSED)
    except (MoragError, OSError) as problem:  # Such as a full disk.
        return _report(problem, FAILED)
    except KeyboardInterrupt:
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="morag",
        description="A Git-like, transactional catalog for data lakes.",
        epilog="Run `morag COMMAND --help` for the flags of a command.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"morag {version('morag')}")
    commands = parser.add_subparsers(metavar="COMMAND")
    for name, purpose in COMMANDS.items():
        commands.add_parser(name, help=purpose)
    return parser


def _without_secrets(text: str) -> str:
    """`text` without passwords, also those in a URL that lacks its scheme."""
    shown = masked(text)
    return shown if "://" in shown else re.sub(r"(\w):\S+@", r"\1:***@", shown)


def _report(problem: Exception, code: int) -> int:
    sys.stderr.write(f"morag: {problem}\n")
    return code
