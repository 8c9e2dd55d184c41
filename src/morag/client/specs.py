"""Writes references, commits and keys in the forms that URLs and bodies need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from morag.errors import BadRequest
from morag.model.keys import check_key
from morag.model.names import check_reference_name
from morag.model.refspecs import RefSpec, Relative, RelativeKind, parse_ref_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.model.keys import ContentKey

_MILLI_NANOS: Final = 1_000_000
_UNSAFE: Final = frozenset("./\\%")
_ESCAPES: Final = str.maketrans({".": "*.", "*": "**", "/": "*{", "\\": "*}", "%": "*["})


def spec_of(at: str | RefSpec) -> RefSpec:
    spec = parse_ref_spec(at) if isinstance(at, str) else at
    if not isinstance(spec, RefSpec):
        raise BadRequest(f"A commit is named by a text or a RefSpec, not by {at!r}")
    if spec.name is None and spec.hash is None:
        raise BadRequest(f"'{spec}' must start with a reference or a hash")
    return spec


def name_path(name: str) -> str:
    """The checked name of a branch or tag as an element of a path."""
    check_reference_name(name)
    return quote(name, safe="")


def path_of(spec: RefSpec) -> str:
    """The spec as an element of a path."""
    at = "" if spec.hash is None else f"@{spec.hash}"
    return quote(f"{spec.name or ''}{at}{steps_text(spec.relatives)}", safe="@")


def steps_text(steps: Sequence[Relative]) -> str:
    return "".join(map(_step_text, steps))


def key_text(key: ContentKey) -> str:
    """A key as a text, not yet percent-encoded.

    The plain form joins the elements with dots. The escaped form starts with a dot and escapes the
    characters that the API or a proxy could take for separators.
    """
    check_key(key)  # Some control characters are separators in the plain form.
    if any(not _UNSAFE.isdisjoint(element) for element in key.elements):
        return "." + ".".join(element.translate(_ESCAPES) for element in key.elements)
    return ".".join(key.elements)


def key_path(key: ContentKey) -> str:
    """The key as an element of a path."""
    return quote(key_text(key), safe="")


def joined(steps: Sequence[Relative]) -> list[Relative]:
    """The steps, with successive predecessors added up: the API takes only one in a path."""
    shorter: list[Relative] = []
    for step in steps:
        last = shorter[-1] if shorter else None
        if last is not None and last.kind is step.kind is RelativeKind.PREDECESSOR:
            shorter[-1] = Relative(step.kind, last.value + step.value)
        else:
            shorter.append(step)
    return shorter


def _step_text(step: Relative) -> str:
    if step.kind is RelativeKind.TIMESTAMP and step.value % _MILLI_NANOS == 0:
        # Older servers refuse a time without a fraction of a second. All accept milliseconds.
        return f"*{step.value // _MILLI_NANOS}"
    return str(step)
