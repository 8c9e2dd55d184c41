"""How errors look on the wire. One function speaks for all of them."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from morag.errors import AboutKey, MoragError, ReferenceConflict, ServiceUnavailable
from morag.model.conflicts import Conflict
from morag.model.keys import ContentKey

if TYPE_CHECKING:
    from morag.api.http import Header

JSON: Final = ((b"content-type", b"application/json"),)
RETRY: Final = ((b"content-type", b"application/json"), (b"retry-after", b"1"))
_MAJOR: Final = re.compile(r"\s*\+?0*([0-9]{1,10})(?:\.|\s*\Z)")


class ConflictDetails(Struct, frozen=True, tag="REFERENCE_CONFLICTS", tag_field="type"):
    conflicts: tuple[Conflict, ...]


class KeyDetails(Struct, frozen=True, tag="CONTENT_KEY", tag_field="type", rename="camel"):
    content_key: ContentKey


class NessieError(Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of every answer that is an error and has a body."""

    status: int
    reason: str
    message: str
    error_code: str
    error_details: ConflictDetails | KeyDetails | UnsetType = UNSET
    server_stack_trace: str | None = None


def error_body(error: Exception, *, details: bool, stack_trace: str | None) -> NessieError:
    """What a client is told. A bug says nothing of itself, unless stack traces are switched on."""
    code, status, message = "UNKNOWN", 500, "Internal error; the server's log has the details"
    if isinstance(error, MoragError):
        code, status, message = error.code, error.status, str(error)
    return NessieError(
        status=status,
        reason=HTTPStatus(status).phrase,
        message=message.encode(errors="replace").decode(),  # Clients may send half a character.
        error_code=code,
        error_details=_details(error) if details else UNSET,
        server_stack_trace=stack_trace,
    )


def encoded(body: NessieError) -> bytes:
    return msgspec.json.encode(body)


def headers_for(error: Exception) -> tuple[Header, ...]:
    """Whoever meets a store that is busy is told when to come back."""
    return RETRY if isinstance(error, ServiceUnavailable) else JSON


def wants_details(client_spec: str | None) -> bool:
    """Clients of spec version 2 and later understand details. The number is a Java int."""
    major = _MAJOR.match(client_spec or "")
    return major is not None and 2 <= int(major[1]) < 1 << 31


def _details(error: Exception) -> ConflictDetails | KeyDetails | UnsetType:
    if isinstance(error, ReferenceConflict) and error.conflicts:
        return ConflictDetails(error.conflicts)
    if isinstance(error, AboutKey) and error.key is not None:
        return KeyDetails(error.key)
    return UNSET
