"""Where settings come from: flags, then `MORAG_*`, then `morag.toml`, then the defaults.

All names are made from the fields in `config.py`: `cache_bytes` is `--cache-bytes`,
`MORAG_CACHE_BYTES`, and `cache_bytes` in the file. A name that is none of them is refused, because
it is most likely one of them misspelt.
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

# What Kubernetes tells a container about a service that is named `morag`, or `morag-` and more.
_OF_KUBERNETES: Final = re.compile(
    r"MORAG_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?"
    r"|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)=.*"
    r"|MORAG_(\w+_)?PORT=(tcp|udp|sctp)://.*",
    re.DOTALL,
)

_WORDS: Final = {
    **dict.fromkeys(("true", "on", "yes", "1"), True),
    **dict.fromkeys(("false", "off", "no", "0"), False),
}


class SettingInvalid(BadRequest):
    """A setting that cannot be right; says where it was set."""


class Field(Struct, frozen=True):
    """One setting, and what it is called in each place."""

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
    """All settings; `flags` are by field name, `config` is the path that was given for the file."""
    variables = _of_environment(environment)
    path, required = Path(directory or ".") / FILE, False
    shown = str(path)
    for named in (config, environment.get(FILE_VARIABLE)):
        if named:
            path, required, shown = Path(named), True, masked(named)
            break
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    for name, value in _of_file(path, required, shown).items():
        values[name], places[name] = _of_toml(FIELDS[name], value, shown), shown
    for name, text in variables.items():
        place = FIELDS[name].variable
        values[name], places[name] = _of_text(FIELDS[name], text, place), place
    for name, given in flags.items():
        place = FIELDS[name].flag
        values[name] = given if isinstance(given, bool) else _of_text(FIELDS[name], given, place)
        places[name] = place
    return Configuration(_made(Settings, values, places), _made(ServerSettings, values, places))


def kind_of(field: Field) -> type:
    """What a value is at heart: of `int | None` it is `int`, of a choice it is `str`."""
    kind: Any = field.kind
    if get_origin(kind) is UnionType:
        kind = next(one for one in get_args(kind) if one is not NoneType)
    plain: type = str if get_origin(kind) is Literal else get_origin(kind) or kind
    return plain


def choices_of(field: Field) -> tuple[str, ...]:
    return get_args(field.kind) if get_origin(field.kind) is Literal else ()


def _of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    known = {field.variable: name for name, field in FIELDS.items()}
    found = {}
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable == FILE_VARIABLE:
            continue
        if _OF_KUBERNETES.fullmatch(f"{variable}={text}"):
            continue
        if variable not in known:
            near = nearest(variable, known)
            raise SettingInvalid(f"There is no setting {variable}{near}; unset it, or correct it")
        found[known[variable]] = text
    return found


def _of_file(path: Path, required: bool, shown: str) -> dict[str, object]:
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
                f"There is no table [{masked(name)}] in '{shown}': settings have no tables; write"
                f" them above all others, like {_first_known(value)}"
            )
        near = nearest(name, FIELDS)
        raise SettingInvalid(f"There is no setting {masked(name)}{near}; correct it in '{shown}'")
    return content


def _first_known(table: Mapping[str, object]) -> str:
    """An example from what was meant, if there is one."""
    name = next((name for name in table if name in FIELDS), "port")
    return f"{name} = ..."


def _of_text(field: Field, text: str, place: str) -> object:
    kind, word = kind_of(field), text.strip().lower()
    if word in ("", "none") and field.default is None:
        return None
    if kind is bool:
        if word not in _WORDS:
            raise SettingInvalid(f"{place} must be true or false, not {masked(repr(text))}")
        return _WORDS[word]
    if kind is tuple:
        return tuple(item.strip() for item in text.split(",") if item.strip())
    try:
        return kind(text) if kind in (int, float) else text
    except ValueError:
        number = "whole number" if kind is int else "number"
        raise SettingInvalid(f"{place} must be a {number}, not {masked(repr(text))}") from None


def _of_toml(field: Field, value: object, place: str) -> object:
    kind = kind_of(field)
    if kind is tuple and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        shown = masked(repr(value))
        raise SettingInvalid(f"{field.name} in '{place}' must be {_EXAMPLES[kind]}, not {shown}")
    return value


_EXAMPLES: Final[dict[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple: "a list of texts",
}


def _made(owner: type[Any], values: Mapping[str, Any], places: Mapping[str, str]) -> Any:
    try:
        return owner(**{name: values[name] for name in owner.__struct_fields__ if name in values})
    except BadRequest as reason:
        text = str(reason)
        named = [name for name in places if text.startswith(f"Setting {name}")]
        place = f" (set by {places[max(named, key=len)]})" if named else ""
        raise SettingInvalid(text + place) from None


def nearest(name: str, known: Iterable[str]) -> str:
    """A question for whoever misspelt one of the known names, or nothing."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""
