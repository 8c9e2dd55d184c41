"""The part of `morag import` that reads from a running server instead of files."""

from __future__ import annotations

import argparse
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from morag.cli.generate_flags import client_of, count
from morag.cli.main import Misuse
from morag.client.errors import NotOffered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from morag.client import Client
    from morag.versions.transfer.catalog_source import CatalogSource

_CONNECTIONS: Final = 8
_OWN_FLAGS: Final = ("token_file", "ca_file", "connections", "refs")


def add_pull_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    group.add_argument(
        "--from",
        dest="uri",
        metavar="URI",
        help="Instead of PATH: a running server, Nessie or Morag, like http://127.0.0.1:19120",
    )
    group.add_argument("--token-file", metavar="PATH", help="A file with the server's bearer token")
    group.add_argument("--ca-file", metavar="PATH", help="Certificates of the authorities to trust")
    group.add_argument(
        "--connections",
        type=count,
        metavar="N",
        help=f"How many requests the server gets at a time [{_CONNECTIONS}]",
    )
    group.add_argument(
        "--refs",
        nargs="+",
        action="extend",
        metavar="GLOB",
        help="Only references with such names, like main 'release/*' [all]",
    )


def check_pull_flags(arguments: argparse.Namespace) -> None:
    """Refuse two sources, none, and flags of a server without one."""
    if arguments.path is not None and arguments.uri is not None:
        raise Misuse("import files at PATH, or --from a server; not both")
    if arguments.uri is not None:
        return
    if arguments.path is None:
        raise Misuse("name the export to import by PATH, or a server by --from URI")
    given = [name for name in _OWN_FLAGS if getattr(arguments, name) is not None]
    if given:
        flag = given[0].replace("_", "-")
        raise Misuse(f"--{flag} belongs to --from: an export is imported as a whole")


@contextmanager
def pulled_source(
    arguments: argparse.Namespace,
    sleep: Callable[[float], None],
    show: Callable[[str, int], None],
) -> Iterator[CatalogSource]:
    """The server as a source, with its references read."""
    # Imported late: an import of files does not need it.
    from morag.versions.transfer.catalog_source import CatalogSource, PullOptions

    connections = arguments.connections or _CONNECTIONS
    address = argparse.Namespace(
        uri=arguments.uri,
        token_file=arguments.token_file,
        ca_file=arguments.ca_file,
        nessie_option=[],
    )
    with client_of(address, connections) as client:
        config = client.config()
        created = config.repository_creation_timestamp
        options = PullOptions(
            references=tuple(arguments.refs or ()),
            connections=connections,
            is_morag=_has_ref_log(client),
            identity=f"a server's repository, created {created}" if created else client.uri,
            oldest_commit_time=config.oldest_possible_commit_timestamp,
        )
        with CatalogSource(client, options, sleep, show) as source:
            yield source


def _has_ref_log(client: Client) -> bool:
    try:
        client.references.moves(1)
    except NotOffered:
        return False
    return True
