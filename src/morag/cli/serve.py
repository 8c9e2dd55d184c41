"""`morag serve`: the catalog over HTTP."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from morag.cli.main import Misuse
from morag.configuring import FIELDS, FILE, FILE_VARIABLE, SettingInvalid, choices_of, kind_of, load

if TYPE_CHECKING:
    from morag.configuring import Field


def configure(parser: argparse.ArgumentParser, explain: bool) -> None:
    meanings: dict[str, str] = {}
    if explain:
        from morag.cli.settings_page import meanings_of_settings  # Reads source: not on each start.

        meanings = meanings_of_settings()
        parser.epilog = (
            f"Every setting can also be given as MORAG_NAME in the environment, or in {FILE}."
            "\nFlags win over the environment, which wins over the file."
        )
    parser.add_argument(
        "--config", metavar="PATH", help=f"read settings from this file ({FILE_VARIABLE})"
    )
    for field in FIELDS.values():
        _add(parser, field, meanings.get(field.name))


def run(arguments: argparse.Namespace) -> int:
    given = vars(arguments)
    flags = {name: given[name] for name in FIELDS if given[name] is not None}
    try:
        configuration = load(flags, given["config"])
    except SettingInvalid as problem:
        raise Misuse(str(problem)) from None
    from morag.server.running import serve  # Not before: most of the time to start goes there.

    return serve(configuration.kernel, configuration.server)


def _add(parser: argparse.ArgumentParser, field: Field, meaning: str | None) -> None:
    help = meaning and f"{meaning} [{_shown(field.default)}]".replace("%", "%%")
    if kind_of(field) is bool:
        parser.add_argument(
            field.flag, help=help, action=argparse.BooleanOptionalAction, default=None
        )
    else:
        metavar = "|".join(choices_of(field)) or kind_of(field).__name__.upper()
        parser.add_argument(field.flag, help=help, metavar=metavar)


def _shown(value: object) -> object:
    if isinstance(value, tuple):
        return ",".join(value) or "none"
    return "none" if value in (None, "") else value
