"""`morag serve`: the catalog over HTTP."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from morag.cli.main import Misuse
from morag.config_sources import (
    FIELDS,
    FILE,
    FILE_VARIABLE,
    SettingInvalid,
    choices_of,
    kind_of,
    load,
)

if TYPE_CHECKING:
    from morag.config_sources import Field


_PLACEHOLDERS: Final = {
    "store": "URL",
    "tls_cert": "PATH",
    "tls_key": "PATH",
    "parents_per_commit": "NUMBER",
    "lane_batch": "NUMBER",
}
"""Of settings whose last word does not describe the value."""


def configure(parser: argparse.ArgumentParser, explain: bool) -> None:
    helps: dict[str, str] = {}
    if explain:
        # Imported late: it parses source code.
        from morag.cli.settings_page import meanings_of_settings, shown

        for name, meaning in meanings_of_settings().items():
            helps[name] = f"{meaning} [{shown(FIELDS[name].default)}]".replace("%", "%%")
        parser.epilog = (
            f"Every setting can also be given as MORAG_NAME in the environment, or in {FILE}."
            "\nFlags override the environment, and the environment overrides the file."
        )
    parser.usage = "%(prog)s [--host HOST] [--port PORT] [--store URL] [--SETTING VALUE ...]"
    parser.add_argument(
        "--config", metavar="PATH", help=f"Read settings from this file ({FILE_VARIABLE})."
    )
    for field in FIELDS.values():
        _add(parser, field, helps.get(field.name))


def run(arguments: argparse.Namespace) -> int:
    given = vars(arguments)
    flags = {name: given[name] for name in FIELDS if given[name] is not None}
    try:
        configuration = load(flags, given["config"])
    except SettingInvalid as problem:
        raise Misuse(str(problem)) from None
    from morag.server.running import serve  # Imported late: it takes most of the start-up time.

    return serve(configuration.kernel, configuration.server)


def _add(parser: argparse.ArgumentParser, field: Field, help: str | None) -> None:
    if kind_of(field) is bool:
        parser.add_argument(
            field.flag, help=help, action=argparse.BooleanOptionalAction, default=None
        )
    else:
        last_word = field.name.rpartition("_")[2].upper()
        metavar = "|".join(choices_of(field)) or _PLACEHOLDERS.get(field.name, last_word)
        parser.add_argument(field.flag, help=help, metavar=metavar)
