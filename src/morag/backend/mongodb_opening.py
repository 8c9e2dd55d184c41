"""Reaching a MongoDB database: with which options, and what to say when it cannot be done."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlencode

from bson.errors import BSONError
from pymongo import MongoClient
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    InvalidURI,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
)
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.uri_parser import parse_uri
from pymongo.write_concern import WriteConcern

from morag.errors import (
    MoragError,
    RepositoryCorrupt,
    RequestTooLarge,
    StoreBusy,
    StoreCannotWrite,
    StoreThrottled,
    StoreUnreachable,
    StoreUrlInvalid,
)

if TYPE_CHECKING:
    from pymongo.database import Database

    from morag.backend.urls import StoreUrl

Document: TypeAlias = dict[str, Any]

REFS: Final = "refs2"
ROWS: Final = "objs2"
LOG: Final = "ref_log"
DUPLICATE: Final = 11000

_SECONDS: Final = {"connect_timeout_seconds": 5.0, "timeout_seconds": 10.0}
_MOST_SECONDS: Final = 3600
_DRIVERS_OWN: Final = frozenset({
    "appName", "authMechanism", "authMechanismProperties", "authSource", "compressors",
    "directConnection", "loadBalanced", "maxPoolSize", "minPoolSize", "replicaSet",
    "srvServiceName", "tls", "tlsAllowInvalidCertificates", "tlsAllowInvalidHostnames",
    "tlsCAFile", "tlsCertificateKeyFile", "tlsCertificateKeyFilePassword",
})  # fmt: skip
"""What is passed on as it is. Concerns, preferences and retries are not: they are promises."""

_PLACE: Final = re.compile(r"//(?:.*@)?[^/@]+/(?P<database>[^/]+)", re.DOTALL)
_CHANGES_MEANING: Final = frozenset({"collation", "viewOn", "capped", "timeseries"})
_NOT_LET_IN: Final = (13, 18, 8000)  # Unauthorized, AuthenticationFailed, and Atlas' word for both.
_THROTTLED: Final = (16500, 462)  # Cosmos DB's code, and that of MongoDB's own rate limits.
_TOO_LARGE: Final = (10334, 17419, 17420)  # As it comes, and as an update would make it.
_BAD_VALUE: Final = 2
_REFUSED: Final = (13, 14031, 96, 8000)  # Not allowed; out of disk space; failed for good.


def open_database(url: StoreUrl) -> Database[Document]:
    """The database that the URL names, which answered and holds nothing that is not ours."""
    url.check_options(frozenset(_SECONDS) | _DRIVERS_OWN)
    place = _PLACE.fullmatch(url.rest)
    if place is None:
        raise StoreUrlInvalid(f"'{url}' names no database; write {url.scheme}://HOST/nessie")
    connect_ms, answer_ms = (
        max(1, int(1000 * url.number(name, _SECONDS[name], _MOST_SECONDS))) for name in _SECONDS
    )
    own = {name: value for name, value in url.options.items() if name not in _SECONDS}
    address = f"{url.scheme}:{url.rest}?{urlencode(own)}"
    try:
        parse_uri(address, warn=False)  # The client would only warn of an option that is not one.
        client: MongoClient[Document] = MongoClient(
            address,
            connectTimeoutMS=connect_ms,
            serverSelectionTimeoutMS=connect_ms,
            timeoutMS=answer_ms,
        )
    except (ConfigurationError, InvalidURI, ValueError, TypeError) as error:
        raise _not_understood(url, error) from error
    database = client.get_database(
        place["database"],
        read_preference=ReadPreference.PRIMARY,
        read_concern=ReadConcern("majority"),
        write_concern=WriteConcern("majority", j=True),
    )
    try:
        _check(database, url)
    except (PyMongoError, BSONError) as error:
        client.close()
        raise _unusable(url, error) from error
    except BaseException:
        client.close()
        raise
    return database


def told(error: PyMongoError | BSONError, place: str) -> MoragError:
    """What the driver says, in our words. Of a write that failed so, the outcome is unknown."""
    code, text = _code(error), f"The MongoDB database {place}"
    if code in _THROTTLED:
        return StoreThrottled(f"{text} takes no more requests for now ({error})")
    if isinstance(error, ConnectionFailure) and not isinstance(error, NotPrimaryError):
        return StoreUnreachable(f"{text} does not answer ({error})")
    if code in _REFUSED:
        return StoreCannotWrite(f"{text} refuses ({error}). Check its disk and our permissions")
    if _is_too_large(error, code):
        return RequestTooLarge(f"{text} does not take so large a row ({error})")
    if isinstance(error, BSONError):
        return RepositoryCorrupt(f"{text} holds what cannot be read ({error})")
    return StoreBusy(f"{text} gave up ({error}); try again")


def _is_too_large(error: Exception, code: int | None) -> bool:
    """The driver only looks at what is larger than a message; the rest is for the server to see."""
    if isinstance(error, DocumentTooLarge) or code in _TOO_LARGE:
        return True
    return code == _BAD_VALUE and "too large" in str(error)


def _code(error: Exception) -> int | None:
    if isinstance(error, BulkWriteError):
        failed = error.details.get("writeErrors", ())
        return next((each["code"] for each in failed if each["code"] != DUPLICATE), None)
    return error.code if isinstance(error, OperationFailure) else None


def _check(database: Database[Document], url: StoreUrl) -> None:
    """MongoDB makes a collection when it first writes to it, so there is no schema to be made.

    What is there must compare text byte by byte, and be keyed as the original keys it.
    """
    wanted = {REFS: ["r", "n"], ROWS: ["r", "i"], LOG: ["r", "k"]}
    there = {each["name"]: each for each in database.list_collections()}
    if url.read_only and not there.keys() >= {REFS, ROWS}:
        raise StoreUrlInvalid(f"There is no store in '{url}'; name its database")
    for name in there.keys() & wanted.keys():
        if there[name].get("options", {}).keys() & _CHANGES_MEANING:
            raise StoreUrlInvalid(
                f"The collection '{name}' of '{url}' has options of its own; name another database"
            )
        some = database[name].find_one({}, {"_id": 1})
        key = None if some is None else some["_id"]
        if some is not None and not (isinstance(key, dict) and list(key) == wanted[name]):
            raise StoreUrlInvalid(
                f"The collection '{name}' of '{url}' is not a catalog's; name another database"
            )


def _unusable(url: StoreUrl, error: PyMongoError | BSONError) -> MoragError:
    if _code(error) in _NOT_LET_IN:
        return StoreUrlInvalid(
            f"MongoDB does not let us into '{url}' ({error}); check user, password and authSource"
        )
    if isinstance(error, ConfigurationError | InvalidURI):
        return _not_understood(url, error)
    return told(error, f"'{url}'")


def _not_understood(url: StoreUrl, error: Exception) -> StoreUrlInvalid:
    # Of a password that is not escaped, the driver may take a piece for the port, and show it.
    reason = "escape what is special in its password, such as @ : / %"
    return StoreUrlInvalid(f"'{url}' is not understood: {reason if '@' in url.rest else error}")
