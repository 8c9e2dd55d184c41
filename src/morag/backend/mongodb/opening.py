"""Connects to a MongoDB database, and checks its collections."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlencode

from pymongo import MongoClient
from pymongo.errors import (
    ConfigurationError,
    InvalidURI,
)
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference
from pymongo.uri_parser import parse_uri
from pymongo.write_concern import WriteConcern

from morag.backend.mongodb.errors import ERRORS, code_of
from morag.errors import (
    StoreUrlInvalid,
)

if TYPE_CHECKING:
    from pymongo.database import Database

    from morag.backend.urls import StoreUrl

Document: TypeAlias = dict[str, Any]

REFS: Final = "refs2"
ROWS: Final = "objs2"
LOG: Final = "ref_log"

_SECONDS: Final = {"connect_timeout_seconds": 5.0, "timeout_seconds": 10.0}
_MOST_SECONDS: Final = 3600
_DRIVERS_OWN: Final = frozenset({
    "appName", "authMechanism", "authMechanismProperties", "authSource", "compressors",
    "directConnection", "loadBalanced", "maxPoolSize", "minPoolSize", "replicaSet",
    "srvServiceName", "tls", "tlsAllowInvalidCertificates", "tlsAllowInvalidHostnames",
    "tlsCAFile", "tlsCertificateKeyFile", "tlsCertificateKeyFilePassword",
})  # fmt: skip
"""Options that are passed on unchanged. Concerns, preferences and retries are not among them: the
guarantees of the backend depend on them."""

_ADDRESS: Final = re.compile(r"//(?:.*@)?[^/@]+/(?P<database>[^/]+)", re.DOTALL)
_CHANGES_MEANING: Final = frozenset({"collation", "viewOn", "capped", "timeseries"})
_NOT_LET_IN: Final = (
    13,
    18,
    8000,
)  # Unauthorized, AuthenticationFailed, and the code of Atlas for both.


def open_database(url: StoreUrl) -> Database[Document]:
    """The database that the URL names, after it answered and its collections were checked."""
    url.check_options(frozenset(_SECONDS) | _DRIVERS_OWN)
    named = _ADDRESS.fullmatch(url.rest)
    if named is None:
        raise StoreUrlInvalid(f"'{url}' names no database; write {url.scheme}://HOST/nessie")
    connect_ms, answer_ms = (
        max(1, int(1000 * url.number(name, _SECONDS[name], _MOST_SECONDS))) for name in _SECONDS
    )
    own = {name: value for name, value in url.options.items() if name not in _SECONDS}
    uri = f"{url.scheme}:{url.rest}?{urlencode(own)}"
    try:
        parse_uri(uri, warn=False)  # The client would only warn of an unknown option.
        client: MongoClient[Document] = MongoClient(
            uri,
            connectTimeoutMS=connect_ms,
            serverSelectionTimeoutMS=connect_ms,
            timeoutMS=answer_ms,
        )
    except (ConfigurationError, InvalidURI, ValueError, TypeError) as error:
        raise _not_understood(url, error) from error
    database = client.get_database(
        named["database"],
        read_preference=ReadPreference.PRIMARY,
        read_concern=ReadConcern("majority"),
        write_concern=WriteConcern("majority", j=True),
    )
    try:
        _check(database, url)
    except ERRORS.raised as error:
        client.close()
        raise _unusable(url, error) from error
    except BaseException:
        client.close()
        raise
    return database


def _check(database: Database[Document], url: StoreUrl) -> None:
    """Check existing collections. MongoDB creates a collection at the first write.

    They must compare text byte by byte, and have the keys of Nessie.
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


def _unusable(url: StoreUrl, error: Exception) -> Exception:
    if code_of(error) in _NOT_LET_IN:
        return StoreUrlInvalid(
            f"MongoDB denies access to '{url}' ({error}); check user, password and authSource"
        )
    if isinstance(error, ConfigurationError | InvalidURI):
        return _not_understood(url, error)
    return ERRORS.translate(error, f"'{url}'")


def _not_understood(url: StoreUrl, error: Exception) -> StoreUrlInvalid:
    # The driver may take a part of an unescaped password for the port, and show it.
    reason = "escape special characters in its password, such as @ : / %"
    return StoreUrlInvalid(f"'{url}' is not understood: {reason if '@' in url.rest else error}")
