"""The flags that all Spark jobs share: session, catalog, progress and output."""

from __future__ import annotations

import argparse
import shlex
import sys
from argparse import ArgumentTypeError
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final

from morag.cli.main import Misuse
from morag.cli.spark_checks import misuse
from morag.cli.spark_text import json_lines, table_text
from morag.client.server_uris import parse_server_uri
from morag.masking import masked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from morag.cli.spark_text import Formatter, Values
    from morag.spark.opening import Origin
    from morag.spark.progress import Progress, ProgressCallback

_ADDRESSES: Final = frozenset({"uri", "store", "store_file"})
_ORIGIN: Final = (*sorted(_ADDRESSES), "token_file", "ca_file", "repository_id")
_CALM: Final = {"spark.ui.showConsoleProgress": "false"}
_SHOWN: Final = 1000
_SECONDS_BETWEEN_LINES: Final = 10


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


def add_store_flags(parser: argparse.ArgumentParser) -> None:
    """For jobs that read or write the rows of a store, which no server exposes."""
    group = parser.add_argument_group("catalog")
    group.add_argument("--store", metavar="URL", help="the store, like rocksdb:./morag-data")
    group.add_argument("--store-file", metavar="PATH", help="or a file with the URL of the store")
    group.add_argument("--repository-id", metavar="ID", help="the repository in the store")
    # Other jobs have this flag; `store_origin_of` explains why this one has not.
    group.add_argument("--uri", help=argparse.SUPPRESS)


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

    given = _given(arguments)
    if len(given.keys() & _ADDRESSES) != 1:
        raise Misuse("name the catalog by --uri or by --store")
    if "uri" in given:
        with misuse():
            parse_server_uri(given["uri"])
    return Origin.of(given)


def catalog_text(arguments: argparse.Namespace) -> str:
    """The flags that name the catalog, to be repeated by the user. Passwords are masked."""
    given = _given(arguments).items()
    words = [word for name, value in given for word in (f"--{name.replace('_', '-')}", value)]
    return shlex.join(masked(word) for word in words)


def store_origin_of(arguments: argparse.Namespace) -> Origin:
    """The origin of a job with `add_store_flags`, which has a `store` and no `uri`."""
    from morag.spark.opening import Origin

    given = _given(arguments)
    if "uri" in given or given.get("store", "").startswith(("http://", "https://")):
        raise Misuse(
            "this job works on the rows of a store, which no server exposes: name the server's "
            "store by --store"
        )
    if len(given.keys() & _ADDRESSES) != 1:
        raise Misuse("name the store by --store or by --store-file")
    return Origin.of(given)


@contextmanager
def session_of(arguments: argparse.Namespace) -> Iterator[SparkSession]:
    from morag.spark.commands import command_session, readable_errors
    from morag.spark.session import check_master

    given = pairs("--conf", arguments.conf)
    jars = [jar for jar in arguments.jars.split(",") if jar]
    with misuse():
        check_master(arguments.master)
    with (
        command_session(arguments.master, jars, _CALM | given, arguments.quiet) as spark,
        readable_errors(),
    ):
        yield spark


def pairs(flag: str, given: Sequence[str], form: str = "NAME=VALUE") -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Misuse(f"{flag} must be {form}, not {text!r}")
        found[name] = value
    return found


@contextmanager
def progress_output(arguments: argparse.Namespace) -> Iterator[ProgressCallback | None]:
    """Progress on standard error: one changing line on a terminal, otherwise a line when a stage
    ends, and one now and then while it takes long."""
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
        self._shown_at = monotonic()

    def show(self, progress: Progress) -> None:
        if self._changes:
            sys.stderr.write(f"\r\x1b[2K{progress}")
            sys.stderr.flush()
            return
        ended = progress.part is None and progress.done == progress.total
        if ended or monotonic() - self._shown_at >= _SECONDS_BETWEEN_LINES:
            self._shown_at = monotonic()
            sys.stderr.write(f"{progress}\n")

    def end(self) -> None:
        if self._changes:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


def show(
    arguments: argparse.Namespace,
    frame: DataFrame,
    text: Formatter = table_text,
) -> None:
    """Print the rows, or write them to `--output`. Only printed rows are sent to this process."""
    if arguments.output is not None:
        from morag.spark.commands import write_parquet

        write_parquet(frame, arguments.output)
        if not arguments.quiet:
            sys.stderr.write(f"written to {arguments.output}\n")
        return
    rows = frame.limit(arguments.limit + 1).collect()
    show_rows(arguments, [row.asDict(recursive=True) for row in rows], text)


def show_rows(
    arguments: argparse.Namespace, rows: Sequence[Values], text: Formatter = table_text
) -> None:
    """Print rows. One more than `--limit` shows that there are more."""
    shown = rows[: arguments.limit]
    sys.stdout.write(json_lines(shown) if arguments.json else text(shown))
    if len(rows) > arguments.limit:
        sys.stderr.write(
            f"only the first {arguments.limit} rows are shown: see --limit and --output\n"
        )


def options_of_files(arguments: argparse.Namespace) -> Mapping[str, str]:
    return pairs("--files", arguments.files)


def _given(arguments: argparse.Namespace) -> dict[str, str]:
    """The flags that name a catalog, as far as the job has them and they were given."""
    named = {name: getattr(arguments, name, None) for name in _ORIGIN}
    return {name: value for name, value in named.items() if value is not None}


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number of rows")
    return int(text)
