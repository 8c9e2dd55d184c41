"""The tools of `morag generate`: they list what a catalog has, and change many keys."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import json

from morag.cli.generate_flags import (
    add_author_flags,
    add_server_flags,
    client_of,
    count,
    verbose_note,
)
from morag.cli.main import FAILED, Misuse
from morag.errors import MoragError
from morag.generate.catalog_changes import CatalogChanges
from morag.generate.key_files import CSV_KEYS, FORMATS, read_keys
from morag.model.keys import ContentKey
from morag.model.refspecs import parse_ref_spec

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from morag.client import Client
    from morag.generate.branch_tips import BranchTip
    from morag.model.refspecs import RefSpec

T = TypeVar("T")


def add_tools(tools: Any) -> None:
    parser = _tool(tools, "entries", "list keys with their types and content ids", _entries)
    _add_ref(parser)
    parser.add_argument("-C", "--with-content", action="store_true", help="list contents, too")
    _add_limit(parser)
    parser = _tool(tools, "commits", "list commits, newest first; with -v operations", _commits)
    _add_ref(parser)
    _add_limit(parser)
    _add_limit(_tool(tools, "refs", "list branches and tags", _refs))
    parser = _tool(tools, "content", "show the content of a key", _content)
    _add_ref(parser)
    _add_key(parser, required=True)
    _add_bulk(_tool(tools, "content-refresh", "put contents again, unchanged", _refresh))
    _add_bulk(_tool(tools, "delete", "delete keys", _delete))
    _add_copy(_tool(tools, "copy", "copy a content many times", _copy))
    parser = _tool(
        tools, "create-missing-namespaces", "create the namespaces that keys need", _namespaces
    )
    parser.add_argument(
        "-r", "--branch", action="append", metavar="NAME", help="may be repeated [all branches]"
    )
    add_author_flags(parser)


def _entries(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        listed = client.contents.entries(
            _at(client, arguments), with_content=arguments.with_content
        )
        for entry in _limited(listed, arguments.limit):
            cells = [entry.type, entry.key.escaped, entry.content_id]
            if entry.content is not None:
                cells.append(json.encode(entry.content).decode())
            _write("\t".join(cells))
    return 0


def _commits(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        log = client.history.log(_at(client, arguments), with_operations=arguments.verbose)
        for entry in _limited(log, arguments.limit):
            meta = entry.meta
            cells = (meta.hash, meta.commit_time, ", ".join(meta.authors), meta.message)
            _write("\t".join(str(cell or "").replace("\n", " ") for cell in cells))
            for operation in entry.operations or ():
                _write(f"  {type(operation).__name__.upper()} {operation.key.escaped}")
    return 0


def _refs(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        for reference in _limited(client.references.list(), arguments.limit):
            _write(f"{reference.type}\t{reference.name}\t{reference.hash}")
    return 0


def _content(arguments: argparse.Namespace) -> int:
    with client_of(arguments) as client:
        content = client.contents.get(_at(client, arguments), _key(arguments.key))
    _write(json.format(json.encode(content), indent=2).decode())
    return 0


def _refresh(arguments: argparse.Namespace) -> int:
    return _in_batches(arguments, "refreshed", CatalogChanges.refresh)


def _delete(arguments: argparse.Namespace) -> int:
    if not (arguments.key or arguments.input or arguments.branch or arguments.all):
        raise Misuse(
            "say what to delete: keys by --key or --input, or all keys of a branch by --branch"
        )
    return _in_batches(arguments, "deleted", CatalogChanges.delete)


def _in_batches(
    arguments: argparse.Namespace,
    done: str,
    change: Callable[[CatalogChanges, BranchTip, Iterable[ContentKey], int], int],
) -> int:
    if arguments.input is not None and (arguments.key or arguments.all):
        raise Misuse("--input replaces --key and --all")
    if arguments.recursive and not arguments.key:
        raise Misuse("--recursive needs a --key")
    with client_of(arguments) as client:
        changes = _changes(client, arguments)
        for tip, keys in _selected(changes, arguments):
            changed = change(changes, tip, keys, arguments.batch)
            _write(f"{done} {changed} keys on {tip.name} {tip.head}")
    return 0


def _selected(
    changes: CatalogChanges, arguments: argparse.Namespace
) -> Iterator[tuple[BranchTip, Sequence[ContentKey]]]:
    if arguments.input is not None:
        by_name: dict[str | None, list[ContentKey]] = {}
        for each in read_keys(arguments.input, arguments.format, arguments.separator):
            by_name.setdefault(arguments.branch or each.reference, []).append(each.key)
        names = {tip.name for tip in changes.branches()}
        for name, keys in by_name.items():
            if name is None or name in names or name == arguments.branch:  # Skip tags.
                yield changes.branch(name), keys
        return
    for tip in changes.branches() if arguments.all else [changes.branch(arguments.branch)]:
        if arguments.key and not arguments.recursive:
            yield tip, [_key(arguments.key)]
        else:
            yield tip, changes.keys(tip, _key(arguments.key) if arguments.key else None)


def _copy(arguments: argparse.Namespace) -> int:
    if not any("%d" in element for element in arguments.to) and arguments.num_copies > 1:
        raise Misuse("--to must have a %d, which becomes the number of the copy")

    def target(number: int) -> ContentKey:
        return ContentKey(tuple(each.replace("%d", str(number)) for each in arguments.to))

    with client_of(arguments) as client:
        changes = _changes(client, arguments)
        tip = changes.branch(arguments.branch)
        changes.copy(tip, _key(arguments.from_key), target, arguments.num_copies)
    _write(f"copied {arguments.num_copies} times on {tip.name} {tip.head}")
    return 0


def _namespaces(arguments: argparse.Namespace) -> int:
    failed = created = 0
    with client_of(arguments) as client:
        changes = _changes(client, arguments)
        if arguments.branch:
            tips = [changes.branch(name) for name in dict.fromkeys(arguments.branch)]
        else:
            tips = changes.branches()
        for tip in tips:
            try:
                created += len(changes.missing_namespaces(tip))
            except MoragError as error:
                failed += 1
                sys.stderr.write(f"morag: branch {tip.name}: {error}\n")
    _write(
        f"{len(tips) - failed} branches processed, {failed} failed, {created} namespaces created"
    )
    return FAILED if failed else 0


def _changes(client: Client, arguments: argparse.Namespace) -> CatalogChanges:
    return CatalogChanges(
        client,
        author=arguments.author,
        message=arguments.message,
        note=verbose_note(arguments),
    )


def _tool(
    tools: Any, name: str, help: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    description = f"{help[:1].upper()}{help[1:]}."
    parser: argparse.ArgumentParser = tools.add_parser(
        name, help=help, description=description, allow_abbrev=False
    )
    parser.set_defaults(tool=run)
    add_server_flags(parser, is_tool=True)
    return parser


def _add_ref(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-r", "--ref", metavar="NAME", help="[the default branch]")
    parser.add_argument("-H", "--hash", help="a commit of it, also like ~1 [its head]")


def _add_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-L", "--limit", type=int, default=0, metavar="N", help="[all]")


def _add_key(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "-k",
        "--key",
        action="append",
        required=required,
        metavar="ELEMENT",
        help="an element of the key; repeat it for the others",
    )


def _add_bulk(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--all", action="store_true", help="on all branches")
    where.add_argument(
        "-r", "--ref", "--branch", dest="branch", metavar="NAME", help="[the default branch]"
    )
    _add_key(parser, required=False)
    parser.add_argument("-R", "--recursive", action="store_true", help="and all keys below the key")
    parser.add_argument("-f", "--input", metavar="PATH", help="a file with the keys")
    parser.add_argument(
        "-F", "--format", type=str.upper, choices=FORMATS, default=CSV_KEYS, help="of that file"
    )
    parser.add_argument(
        "-S", "--separator", help="between the elements in lines of the file [lines are paths]"
    )
    parser.add_argument(
        "-B", "--batch", type=count, default=100, metavar="N", help="keys per commit [%(default)s]"
    )
    add_author_flags(parser)


def _add_copy(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-r", "--ref", "--branch", dest="branch", metavar="NAME", help="[the default branch]"
    )
    parser.add_argument(
        "-n", "--num-copies", type=count, default=10_000, metavar="N", help="[%(default)s]"
    )
    parser.add_argument(
        "-k",
        "--from",
        dest="from_key",
        action="append",
        required=True,
        metavar="ELEMENT",
        help="an element of the key to copy; repeat it for the others",
    )
    parser.add_argument(
        "-t",
        "--to",
        action="append",
        required=True,
        metavar="ELEMENT",
        help="an element of the new keys; %%d becomes the number of the copy",
    )
    add_author_flags(parser)


def _at(client: Client, arguments: argparse.Namespace) -> RefSpec:
    name = arguments.ref or client.default_branch
    hash = arguments.hash
    if hash is None:
        return parse_ref_spec(name)
    return parse_ref_spec(f"{name}{hash}" if hash[:1] in "~^*@" else f"{name}@{hash}")


def _key(elements: Sequence[str]) -> ContentKey:
    return ContentKey(tuple(elements))


def _limited(items: Iterable[T], limit: int) -> Iterator[T]:
    return islice(items, limit if limit > 0 else None)


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
