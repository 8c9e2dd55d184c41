"""docs/generate.md names every flag, and its commands can be parsed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

import pytest

from morag.cli import generate, spark
from morag.cli.main import Parser

_TEXT: Final = (Path(__file__).parents[2] / "docs" / "generate.md").read_text()
_COMMANDS: Final = re.findall(r"^    morag ((?:\\\n|[^\n])*)", _TEXT, re.MULTILINE)
_TWICE: Final = frozenset({"--help", "--nessie-client", "--verbose", "--message"})
"""Flags that are accepted and ignored, or that have a short form on the page."""


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_command_can_be_parsed(command: str) -> None:
    name, *arguments = shlex.split(command.replace("\\\n", " "))
    parser = Parser()
    {"generate": generate, "spark": spark}[name].configure(parser, explain=False)
    parser.parse(arguments)


def test_every_flag_of_the_generator_is_documented() -> None:
    parser = Parser()
    generate.configure(parser, explain=False)
    flags = {flag for action in parser._actions for flag in action.option_strings}
    long = {flag for flag in flags if flag.startswith("--")} - _TWICE
    assert {flag for flag in long if f"`{flag}`" not in _TEXT} == set()
