"""Checks that come before the work, and the words they use: `call.parameter: what is wrong`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from morag.api.call import checked
from morag.errors import BadRequest
from morag.model.names import check_reference_name

if TYPE_CHECKING:
    from collections.abc import Sized

    from morag.model.names import ReferenceKind

T = TypeVar("T")

_KINDS: Final[dict[str, ReferenceKind]] = {
    "BRANCH": "BRANCH",
    "branch": "BRANCH",
    "TAG": "TAG",
    "tag": "TAG",
}


def required(where: str, value: T | None) -> T:
    if value is None:
        raise BadRequest(f"{where}: must not be null")
    return value


def some(where: str, values: Sized | None) -> None:
    if not values:
        raise BadRequest(f"{where}: size must be between 1 and 2147483647")


def reference_name(where: str, name: str) -> str:
    checked(where, check_reference_name, name)
    return name


def reference_kind(where: str, text: str) -> ReferenceKind:
    if text not in _KINDS:
        raise BadRequest(f"{where}: Reference type name must be either 'branch' or 'tag'")
    return _KINDS[text]


def optional_kind(where: str, text: str | None) -> ReferenceKind | None:
    return None if text is None else reference_kind(where, text)
