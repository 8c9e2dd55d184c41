"""Prints docs/settings.md, generated from `config.py`: `python -m morag.cli.settings_page`."""

from __future__ import annotations

import ast
import inspect
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from morag import config
from morag.config import (
    KERNEL_BOUNDS,
    SECONDS,
    SERVER_BOUNDS,
    YEAR_SECONDS,
    ServerSettings,
    Settings,
)
from morag.config_sources import FIELDS, FILE, FILE_VARIABLE, PREFIX, choices_of, kind_of

if TYPE_CHECKING:
    from morag.config_sources import Field

_INTRODUCTION: Final = f"""\
# Settings

Every setting has one name in three places: a flag of `morag serve`, an environment variable and a
line of `{FILE}`. For `cache_bytes` these are `--cache-bytes 1000000`, `{PREFIX}CACHE_BYTES=1000000`
and `cache_bytes = 1000000`. Flags override the environment, the environment overrides the file, and
the file overrides the defaults.

- `{FILE}` is read from the working directory; `--config PATH` or `{FILE_VARIABLE}` names another
  file.
- A setting that is on or off is written `--stack-traces` or `--no-stack-traces` as a flag, and
  `true` or `false` elsewhere. Items of a list are separated by commas; in the file they are a list.
- "Not set" is not a value. To leave such a setting unset, omit it, or make its variable empty.
- With an unknown name or a wrong value the server does not start. It ignores the variables that
  Kubernetes sets for a service named `morag`, such as `{PREFIX}SERVICE_HOST` and
  `{PREFIX}PORT=tcp://...`.
- `morag.open(url, morag.Settings(...))` takes the settings of the catalog.
"""

_ABOUT_CATALOG: Final = """\
The [glossary](../ARCHITECTURE.md#glossary) explains stripes, spills and lanes."""

_NOT_SET: Final = "not set"


def meanings_of_settings() -> dict[str, str]:
    """The sentence under each field of `config.py`."""
    meanings: dict[str, str] = {}
    for node in ast.parse(inspect.getsource(config)).body:
        if isinstance(node, ast.ClassDef):
            for field, text in pairwise(node.body):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    assert isinstance(text.value, ast.Constant), "a sentence follows each field"
                    meanings[ast.unparse(field.target)] = inspect.cleandoc(str(text.value.value))
    return meanings


def shown(value: object) -> str:
    """A default value in the form in which users write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value) or _NOT_SET
    return _NOT_SET if value in (None, "") else f"{value:g}" if type(value) is float else str(value)


def page() -> str:
    parts = [_INTRODUCTION]
    for title, owner in (
        ("The server", ServerSettings),
        (f"The catalog\n\n{_ABOUT_CATALOG}", Settings),
    ):
        rows = [_row(field) for field in FIELDS.values() if field.owner is owner]
        parts.append(f"## {title}\n\n| setting | default | meaning |\n|---|---|---|\n")
        parts[-1] += "".join(rows)
    return "\n".join(parts)


def _row(field: Field) -> str:
    *most, last = [f"`{choice}`" for choice in choices_of(field)] or [_KINDS[kind_of(field)]]
    kind = f"{', '.join(most)} or {last}" if most else last
    if bounds := (SERVER_BOUNDS | KERNEL_BOUNDS).get(field.name):
        kind += f", {bounds[0]} to {bounds[1]}"
    elif field.name in SECONDS:
        kind += f", above 0 and at most {YEAR_SECONDS}"
    meaning = meanings_of_settings()[field.name].replace("\n", " ")
    default = shown(field.default)
    cell = default if default == _NOT_SET else f"`{default}`"
    return f"| `{field.name}` | {cell} | {kind}. {meaning} |\n"


_KINDS: Final = {
    bool: "On or off",
    int: "Whole number",
    float: "Number",
    str: "Text",
    tuple: "List",
}

if __name__ == "__main__":
    sys.stdout.write(page())
