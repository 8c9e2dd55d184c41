"""The page that explains every setting, made from `config.py`: `python -m morag.cli.settings_page`.

It writes to standard output; `docs/settings.md` is what it wrote.
"""

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
from morag.configuring import FIELDS, FILE, FILE_VARIABLE, PREFIX, choices_of, kind_of

if TYPE_CHECKING:
    from morag.configuring import Field

_INTRODUCTION: Final = f"""\
# Settings

A setting is given as a flag of `morag serve`, in the environment, or in `{FILE}`, under one name:
`cache_bytes` is `--cache-bytes 1000000`, `{PREFIX}CACHE_BYTES=1000000`, and `cache_bytes = 1000000`
in the file. Flags win over the environment, which wins over the file, which wins over the default.

- `{FILE}` is read from the working directory; `--config PATH` or `{FILE_VARIABLE}` name another.
- A setting that is on or off is `--stack-traces` or `--no-stack-traces` as a flag, and `true` or
  `false` elsewhere. Lists are separated by commas, in the file they are lists.
- An unknown name or a wrong value is an error, and nothing is started. The variables that
  Kubernetes sets for a service named `morag` (`{PREFIX}SERVICE_HOST`, `{PREFIX}PORT=tcp://...` and
  their like) are no settings and are ignored.
- `morag.open(url, morag.Settings(...))` takes those of the catalog.
"""


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
    """A default, as one would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value) or "none"
    return "none" if value in (None, "") else f"{value:g}" if type(value) is float else str(value)


def page() -> str:
    parts = [_INTRODUCTION]
    for title, owner in (("The server", ServerSettings), ("The catalog", Settings)):
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
    return f"| `{field.name}` | `{shown(field.default)}` | {kind}. {meaning} |\n"


_KINDS: Final = {
    bool: "On or off",
    int: "Whole number",
    float: "Number",
    str: "Text",
    tuple: "List",
}

if __name__ == "__main__":
    sys.stdout.write(page())
