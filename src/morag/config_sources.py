"""Reads settings from flags, then `MORAG_*`, then `morag.toml`, then the defaults.

All names derive from the fields in `config.py`: `cache_bytes` is `--cache-bytes`,
`MORAG_CACHE_BYTES`, and `cache_bytes` in the file. An unknown name is an error, because it is most
likely a misspelt setting.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin, get_type_hints

from msgspec import Struct

from morag.config import ServerSettings, Settings
from morag.errors import BadRequest
from morag.masking import masked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX: Final = "MORAG_"
FILE: Final = "morag.toml"
FILE_VARIABLE: Final = PREFIX + "CONFIG"

# Variables that Kubernetes sets in a container for a service named `morag` or `morag-...`.
_KUBERNETES_VARIABLE: Final = re.compile(
    r"MORAG_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?"
    r"|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)=.*"
    r"|MORAG_(\w+_)?PORT=(tcp|udp|sctp)://.*",
    re.DOTALL,
)

_BOOLEANS: Final = {
    **dict.fromkeys(("true", "on", "yes", "1"), True),
    **dict.fromkeys(("false", "off", "no", "0"), False),
}


class SettingInvalid(BadRequest):
    """A setting has a wrong name or value; the message names its source."""


class Field(Struct, frozen=True):
    """One setting, and its name in each source."""

    name: str
    kind: Any
    default: object
    owner: type[Settings | ServerSettings]

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()


def _fields(owner: type[Settings | ServerSettings]) -> list[Field]:
    kinds, default = get_type_hints(owner), owner()
    return [Field(n, kinds[n], getattr(default, n), owner) for n in owner.__struct_fields__]


FIELDS: Final = {
    field.name: field for owner in (ServerSettings, Settings) for field in _fields(owner)
}


class Configuration(Struct, frozen=True):
    kernel: Settings
    server: ServerSettings


def load(
    flags: Mapping[str, str | bool],
    config: str | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    directory: Path | None = None,
) -> Configuration:
    """Read all settings. `flags` has field names as keys, `config` is the value of `--config`."""
    variables = _from_environment(environment)
    path, required = Path(directory or ".") / FILE, False
    shown = str(path)
    for named in (config, environment.get(FILE_VARIABLE)):
        if named:
            path, required, shown = Path(named), True, masked(named)
            break
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, value in _from_file(path, required, shown).items():
        values[name], sources[name] = _from_toml(FIELDS[name], value, shown), shown
    for name, text in variables.items():
        source = FIELDS[name].variable
        values[name], sources[name] = _from_text(FIELDS[name], text, source), source
    for name, given in flags.items():
        source = FIELDS[name].flag
        values[name] = given if isinstance(given, bool) else _from_text(FIELDS[name], given, source)
        sources[name] = source
    return Configuration(_build(Settings, values, sources), _build(ServerSettings, values, sources))


def kind_of(field: Field) -> type:
    """The plain type of a setting: `int` for `int | None`, `str` for a choice."""
    kind: Any = field.kind
    if get_origin(kind) is UnionType:
        kind = next(one for one in get_args(kind) if one is not NoneType)
    plain: type = str if get_origin(kind) is Literal else get_origin(kind) or kind
    return plain


def choices_of(field: Field) -> tuple[str, ...]:
    return get_args(field.kind) if get_origin(field.kind) is Literal else ()


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    known = {field.variable: name for name, field in FIELDS.items()}
    found = {}
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable == FILE_VARIABLE:
            continue
        if _KUBERNETES_VARIABLE.fullmatch(f"{variable}={text}"):
            continue
        if variable not in known:
            near = nearest(variable, known, PREFIX)
            raise SettingInvalid(f"There is no setting {variable}{near}; unset it, or correct it")
        found[known[variable]] = text
    return found


def _from_file(path: Path, required: bool, shown: str) -> dict[str, object]:
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if required:
            raise SettingInvalid(f"There is no file '{shown}' to read settings from") from None
        return {}
    except OSError as error:
        raise SettingInvalid(f"Cannot read settings from '{shown}': {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingInvalid(f"Cannot read settings from '{shown}': {error}") from None
    for name, value in content.items():
        if name in FIELDS:
            continue
        if isinstance(value, dict):
            raise SettingInvalid(
                f"Settings are not in tables: remove the line [{masked(name)}] from '{shown}', and"
                f" keep lines like {_example_line(value)}"
            )
        near = nearest(name, FIELDS)
        raise SettingInvalid(f"There is no setting {masked(name)}{near}; correct it in '{shown}'")
    return content


def _example_line(table: Mapping[str, object]) -> str:
    """An example line, with a setting from the table if it has one."""
    name = next((name for name in table if name in FIELDS), "port")
    return f"{name} = ..."


def _from_text(field: Field, text: str, source: str) -> object:
    kind, word = kind_of(field), text.strip().lower()
    if word in ("", "none") and field.default is None:
        return None
    if kind is bool:
        if word not in _BOOLEANS:
            raise SettingInvalid(f"{source} must be true or false, not {masked(repr(text))}")
        return _BOOLEANS[word]
    if kind is tuple:
        return tuple(item.strip() for item in text.split(",") if item.strip())
    try:
        return kind(text) if kind in (int, float) else text
    except ValueError:
        number = "whole number" if kind is int else "number"
        raise SettingInvalid(f"{source} must be a {number}, not {masked(repr(text))}") from None


def _from_toml(field: Field, value: object, source: str) -> object:
    kind = kind_of(field)
    if kind is tuple and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        shown = masked(repr(value))
        raise SettingInvalid(f"{field.name} in '{source}' must be {_EXAMPLES[kind]}, not {shown}")
    return value


_EXAMPLES: Final[dict[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple: "a list of texts",
}


def _build(owner: type[Any], values: Mapping[str, Any], sources: Mapping[str, str]) -> Any:
    try:
        return owner(**{name: values[name] for name in owner.__struct_fields__ if name in values})
    except BadRequest as reason:
        text = str(reason)
        named = [name for name in sources if text.startswith(f"Setting {name}")]
        source = f" (set by {sources[max(named, key=len)]})" if named else ""
        raise SettingInvalid(text + source) from None


def nearest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """ " (did you mean ...?)" with the known name closest to `name`, or an empty text.

    The prefix that the names share does not count.
    """
    bare = {each.removeprefix(prefix): each for each in known}
    near = difflib.get_close_matches(name.removeprefix(prefix), list(bare), 1)
    return f" (did you mean {bare[near[0]]}?)" if near else ""
