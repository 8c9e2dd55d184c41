"""Flags, progress and exit codes that `morag export` and `morag import` share."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from morag.backend.urls import StoreUrl
from morag.cli.main import FAILED, Misuse
from morag.config_sources import FILE, FILE_VARIABLE, SettingInvalid, load
from morag.errors import (
    ArchiveInvalid,
    ImportUnderWay,
    MoragError,
    RepositoryCorrupt,
    RepositoryExists,
    RepositoryMissing,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from morag.config import Settings

PROBLEMS_FOUND: Final = 3
NO_REPOSITORY: Final = 4
EXISTS: Final = 100

_CODES: Final[tuple[tuple[type[MoragError], int], ...]] = (
    (RepositoryMissing, NO_REPOSITORY),
    (RepositoryExists, EXISTS),
    (ImportUnderWay, FAILED),
    (ArchiveInvalid, PROBLEMS_FOUND),
    (RepositoryCorrupt, PROBLEMS_FOUND),
)
_PAUSE_SECONDS: Final = 0.2
_QUIET_PAUSE_SECONDS: Final = 5.0


def add_store_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("store")
    group.add_argument("--store", metavar="URL", help="The store (MORAG_STORE) [as `morag serve`]")
    group.add_argument("--repository-id", metavar="ID", help="The repository in the store")
    group.add_argument(
        "--config",
        metavar="PATH",
        help=f"Read settings from this file, by default {FILE} ({FILE_VARIABLE})",
    )


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="Print the result as JSON")
    parser.add_argument("--quiet", action="store_true", help="Show no progress")


def add_check_flag(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument(
        "--check",
        nargs="?",
        const="count",
        choices=("count", "strict"),
        metavar="strict",
        help=help,
    )


def store_of(arguments: argparse.Namespace) -> tuple[str, Settings]:
    """The URL of the store and the settings, from flags, environment and file."""
    flags = {
        name: value
        for name in ("store", "repository_id")
        if (value := getattr(arguments, name)) is not None
    }
    try:
        configuration = load(flags, arguments.config)
    except SettingInvalid as problem:
        raise Misuse(str(problem)) from None
    url = configuration.server.store
    return url, StoreUrl.parse(url).settings(configuration.kernel)


def repository_name(url: str, settings: Settings) -> str:
    """The name to confirm before something is erased: the repository id, or else the last part of
    the store's URL, without a password."""
    if settings.repository_id:
        return settings.repository_id
    parsed = StoreUrl.parse(url)
    return parsed.rest.rstrip("/").rpartition("/")[2].rpartition("@")[2] or parsed.scheme


@contextmanager
def exit_code(codes: list[int]) -> Iterator[None]:
    """Print an error that has an exit code of its own, and add the code to `codes`."""
    try:
        yield
    except MoragError as problem:
        for kind, code in _CODES:
            if isinstance(problem, kind):
                sys.stderr.write(f"morag: {problem}\n")
                codes.append(code)
                return
        raise


class TransferProgress:
    """Counts and rates on standard error: one changing line on a terminal, else a line at times.

    The line is removed at the end of a `with` block.
    """

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._expected: dict[str, int | None] = {}
        self._changes = sys.stderr.isatty()
        self._stage = ""
        self._began = self._started = self._shown = time.monotonic()
        self._is_line_open = False

    def expect(self, stage: str, count: int | None) -> None:
        """How much of a stage there is, if that is known."""
        self._expected[stage] = count

    def show(self, stage: str, done: int) -> None:
        if self._quiet:
            return
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._started = stage, now
        pause = _PAUSE_SECONDS if self._changes else _QUIET_PAUSE_SECONDS
        if now - self._shown < pause:
            return
        self._shown = now
        expected = self._expected.get(stage)
        of = f" of {expected:,}" if expected else ""
        seconds = now - self._started
        rate = f", {done / seconds:,.0f}/s" if seconds > 1 else ""
        text = f"{stage}: {done:,}{of}{rate}"
        sys.stderr.write(f"\r\x1b[2K{text}" if self._changes else f"{text}\n")
        sys.stderr.flush()
        self._is_line_open = self._changes

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._began

    def end(self) -> None:
        if self._is_line_open:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._is_line_open = False

    def __enter__(self) -> TransferProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
