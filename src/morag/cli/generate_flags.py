"""The flags that `morag generate` and its tools share: the server, numbers and durations."""

from __future__ import annotations

import argparse
import getpass
import re
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from morag.cli.main import Misuse
from morag.client import Client
from morag.errors import BadRequest
from morag.generate.random_contents import CONTENT_TYPES
from morag.model.durations import parse_duration
from morag.model.times import SECOND_NANOS

if TYPE_CHECKING:
    from collections.abc import Callable

_URI: Final = "http://127.0.0.1:19120"
_SECONDS: Final = re.compile(r"(\d+(?:\.\d+)?)\s*s?", re.ASCII)
_TIMEOUT: Final = "nessie.transport.read-timeout"
_TOKEN: Final = "nessie.authentication.token"
_KINDS: Final = "nessie.authentication.type"


def add_server_flags(parser: argparse.ArgumentParser, *, is_tool: bool = False) -> None:
    """The flags of a tool have no defaults, so that those before its name count as well."""

    def default(value: Any) -> Any:
        return argparse.SUPPRESS if is_tool else value

    group = parser.add_argument_group("server")
    group.add_argument(
        "-u",
        "--uri",
        default=default(_URI),
        help=f"the server, Morag or Nessie; API v2 is used, whichever the URI names [{_URI}]",
    )
    group.add_argument(
        "--token-file", metavar="PATH", default=default(None), help="a file with a bearer token"
    )
    group.add_argument(
        "--ca-file",
        metavar="PATH",
        default=default(None),
        help="certificates of the authorities to trust",
    )
    group.add_argument(
        "-o",
        "--nessie-option",
        metavar="NAME=VALUE",
        action="append",
        default=default([]),
        help=f"an option of Nessie's client; understood are {_TOKEN} and {_TIMEOUT} (in ms)",
    )
    group.add_argument("--nessie-client", default=default(None), help=argparse.SUPPRESS)
    group.add_argument(
        "-v", "--verbose", action="store_true", default=default(False), help="tell more"
    )


def add_author_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--author",
        default=_user(),
        help="the author of the commits [the user]",
    )
    parser.add_argument("-m", "--message", help="the message of the commits [it tells the number]")


def add_history_flags(parser: argparse.ArgumentParser) -> None:
    """Describe the generated history: the same on a server and in a store."""
    group = parser.add_argument_group("history")
    group.add_argument(
        "-n", "--num-commits", type=count, default=100, metavar="N", help="commits [%(default)s]"
    )
    group.add_argument(
        "-b",
        "--num-branches",
        type=count,
        default=1,
        metavar="N",
        help="branches, the default branch included [%(default)s]",
    )
    group.add_argument(
        "-T",
        "--tag-probability",
        type=probability,
        default=0.0,
        metavar="P",
        help="how likely a commit gets a tag, from 0 to 1 [%(default)g]",
    )
    group.add_argument(
        "-D",
        "--default-branch",
        metavar="NAME",
        help="the branch that gets commits first; it is created if missing [the server's]",
    )
    group.add_argument(
        "-t", "--num-tables", type=count, default=1, metavar="N", help="keys [%(default)s]"
    )
    group.add_argument(
        "--type",
        type=str.upper,
        choices=CONTENT_TYPES,
        default="ICEBERG_TABLE",
        help="the type of the contents [%(default)s]",
    )
    group.add_argument(
        "--key-pattern",
        metavar="PATTERN",
        help="how keys are named, like 'db.${every,10,uuid}.t_${seq,1}'",
    )
    group.add_argument(
        "--puts-per-commit",
        type=count,
        default=1,
        metavar="N",
        help="how many keys a commit changes at most [%(default)s]",
    )
    group.add_argument(
        "--seed", type=int, metavar="N", help="generate the same history each time [another one]"
    )
    add_author_flags(parser)


def add_report_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def client_of(arguments: argparse.Namespace, connections: int = 4) -> Client:
    """A client of the server, which was reached once."""
    options = _nessie_options(arguments.nessie_option)
    token = options.get(_TOKEN)
    if arguments.token_file is not None:
        try:
            token = Path(arguments.token_file).read_text().strip()
        except (OSError, UnicodeError) as error:
            raise Misuse(f"--token-file cannot be read: {error}") from None
    client = Client(
        _of_api_v2(arguments.uri),
        token=token,
        ca_file=arguments.ca_file,
        timeout_seconds=_timeout_seconds(options.get(_TIMEOUT, "60000")),
        connections=connections,
    )
    try:
        client.config()
    except BaseException:
        client.close()
        raise
    return client


def verbose_note(arguments: argparse.Namespace) -> Callable[[str], None]:
    """Writes lines to standard error, with -v."""
    if not arguments.verbose:
        return lambda _: None
    return lambda line: _write(f"{line}\n")


def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def count_or_zero(text: str) -> int:
    return 0 if text == "0" else count(text)


def probability(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return found


def rate(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e9:
        raise ArgumentTypeError(f"{text!r} is not a number per second")
    return found


def duration_seconds(text: str) -> float:
    """`20`, `20s` or a duration like `PT1M30S`."""
    plain = _SECONDS.fullmatch(text)
    try:
        seconds = float(plain[1]) if plain else parse_duration(text) / SECOND_NANOS
    except BadRequest as error:
        raise ArgumentTypeError(f"{error}, or as a number of seconds") from None
    if seconds <= 0:
        raise ArgumentTypeError(f"{text!r} must be above 0")
    return seconds


def _of_api_v2(uri: str) -> str:
    """Nessie's tools are also given the URI of API v1, which the same server has."""
    stripped = uri.rstrip("/")
    return f"{stripped[:-1]}2" if stripped.endswith("/api/v1") else uri


def _nessie_options(given: list[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:  # Without the text: it may be a token.
            raise Misuse("--nessie-option must be NAME=VALUE")
        found[name] = value
        kind = value.upper()
        if name == _KINDS and kind not in ("NONE", "BEARER"):
            raise Misuse(f"{_KINDS} can be NONE or BEARER, with a token; not {value!r}")
        if name not in (_TOKEN, _KINDS, _TIMEOUT):
            _write(f"morag: the option {name} of Nessie's client is ignored\n")
    return found


def _timeout_seconds(millis: str) -> float:
    if not millis.isdecimal() or int(millis) < 1:
        raise Misuse(f"{_TIMEOUT} must be a number of milliseconds, not {millis!r}")
    return int(millis) / 1000


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # This process belongs to nobody.
        return ""


def _write(text: str) -> None:
    sys.stderr.write(text)
