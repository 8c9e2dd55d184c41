"""The bodies and headers of error responses."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET, UnsetType

from morag.errors import AboutKey, MoragError, ReferenceConflict, ServiceUnavailable
from morag.rest.responses import ConflictDetails, KeyDetails, NessieError

if TYPE_CHECKING:
    from morag.api.http import Header

JSON: Final = ((b"content-type", b"application/json"),)
RETRY: Final = ((b"content-type", b"application/json"), (b"retry-after", b"1"))
_MAJOR: Final = re.compile(r"\s*\+?0*([0-9]{1,10})(?:\.|\s*\Z)")


def error_body(error: Exception, *, details: bool, stack_trace: str | None) -> NessieError:
    """The body of an error. A bug shows no details, unless stack traces are switched on."""
    code, status, message = "UNKNOWN", 500, "Internal error; the server's log has the details"
    if isinstance(error, MoragError):
        code, status, message = error.code, error.status, str(error)
    return NessieError(
        status=status,
        reason=HTTPStatus(status).phrase,
        message=message.encode(errors="replace").decode(),  # Clients may send lone surrogates.
        error_code=code,
        error_details=_details(error) if details else UNSET,
        server_stack_trace=stack_trace,
    )


def encoded(body: NessieError) -> bytes:
    return msgspec.json.encode(body)


def headers_for(error: Exception) -> tuple[Header, ...]:
    """If the store is busy, the headers include when to retry."""
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
