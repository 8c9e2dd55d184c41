"""The flags that all Spark jobs share: session, catalog, progress and output."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from morag.cli.main import Misuse
from morag.cli.spark_text import json_lines, table_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession

    from morag.spark.opening import Origin
    from morag.spark.progress import Progress, ProgressCallback

_ADDRESSES: Final = frozenset({"uri", "store", "store_file"})
_ORIGIN: Final = (*sorted(_ADDRESSES), "token_file", "ca_file", "repository_id")
_QUIET: Final = {"spark.ui.showConsoleProgress": "false"}
_SHOWN: Final = 1000


def add_flags(parser: argparse.ArgumentParser, catalog: bool = True) -> None:
    if catalog:
        add_catalog_flags(parser)
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master",
        metavar="URL",
        help="where Spark runs [the master of an installed Spark, or this machine]",
    )
    group.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a setting of Spark, like spark.sql.shuffle.partitions=8; may be repeated",
    )
    group.add_argument("--jars", metavar="PATH,...", default="", help="jars for Spark to load")
    group.add_argument("--quiet", action="store_true", help="print errors only, no progress")


def add_catalog_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("catalog")
    group.add_argument("--uri", metavar="URL", help="a server, like http://127.0.0.1:19120")
    group.add_argument("--store", metavar="URL", help="or a store, like rocksdb:./morag-data")
    group.add_argument("--store-file", metavar="PATH", help="or a file with the URL of a store")
    group.add_argument("--token-file", metavar="PATH", help="a file with the server's bearer token")
    group.add_argument("--ca-file", metavar="PATH", help="certificates of the authorities to trust")
    group.add_argument("--repository-id", metavar="ID", help="the repository in the store")


def add_lake_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--files",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an option of PyIceberg for reaching files, like s3.endpoint=http://127.0.0.1:9000",
    )


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="one JSON object per line")
    group.add_argument(
        "--output", metavar="PATH", help="write all rows as Parquet to this new path"
    )
    group.add_argument(
        "--limit", metavar="ROWS", type=_count, default=_SHOWN, help=f"rows to show [{_SHOWN}]"
    )


def origin_of(arguments: argparse.Namespace) -> Origin:
    from morag.spark.opening import Origin

    given = {name: value for name in _ORIGIN if (value := getattr(arguments, name)) is not None}
    if len(given.keys() & _ADDRESSES) != 1:
        raise Misuse("name the catalog by --uri or by --store")
    return Origin.of(given)


@contextmanager
def session_of(arguments: argparse.Namespace) -> Iterator[SparkSession]:
    from morag.spark.commands import command_session

    given = pairs("--conf", arguments.conf)
    jars = [jar for jar in arguments.jars.split(",") if jar]
    with command_session(arguments.master, jars, _QUIET | given) as spark:
        yield spark


def pairs(flag: str, given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Misuse(f"{flag} must be NAME=VALUE, not {text!r}")
        found[name] = value
    return found


@contextmanager
def progress_output(arguments: argparse.Namespace) -> Iterator[ProgressCallback | None]:
    """Progress on standard error: one changing line on a terminal, otherwise a line per stage and
    a few in between."""
    if arguments.quiet:
        yield None
        return
    line = _Line(sys.stderr.isatty())
    try:
        yield line.show
    finally:
        line.end()


class _Line:
    """The line that shows progress. If it `changes`, it is overwritten."""

    def __init__(self, changes: bool) -> None:
        self._changes = changes
        self._stage = ""
        self._tenth = -1

    def show(self, progress: Progress) -> None:
        if self._changes:
            sys.stderr.write(f"\r\x1b[2K{progress}")
            sys.stderr.flush()
            return
        tenth = 10 * progress.done // progress.total if progress.total else 0
        if (progress.stage, tenth) != (self._stage, self._tenth):
            self._stage, self._tenth = progress.stage, tenth
            sys.stderr.write(f"{progress}\n")

    def end(self) -> None:
        if self._changes:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


def show(
    arguments: argparse.Namespace,
    frame: DataFrame,
    text: Callable[[Sequence[Row]], str] = table_text,
) -> None:
    """Print the rows, or write them to `--output`. Only printed rows are sent to this process."""
    if arguments.output is not None:
        from morag.spark.commands import write_parquet

        write_parquet(frame, arguments.output)
        sys.stderr.write(f"written to {arguments.output}\n")
        return
    rows = frame.limit(arguments.limit + 1).collect()
    shown = rows[: arguments.limit]
    sys.stdout.write(json_lines(shown) if arguments.json else text(shown))
    if len(rows) > arguments.limit:
        sys.stderr.write(
            f"only the first {arguments.limit} rows are shown: see --limit and --output\n"
        )


def options_of_files(arguments: argparse.Namespace) -> Mapping[str, str]:
    return pairs("--files", arguments.files)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number of rows")
    return int(text)
