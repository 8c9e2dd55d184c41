"""A client of catalog servers, over REST API v2: of Morag's servers and of Nessie's.

    with Client("http://127.0.0.1:19120/api/v2") as catalog:
        catalog.commit("main", [Put(key, content)], "create a table")

A `Client` has the methods of a `Repository` that the API supports, with the same names, structs
and errors. This package knows `model`, `rest` and HTTP, and does not know how anything is stored.
"""

from __future__ import annotations

from morag.client.client import Client
from morag.client.decoders import Configuration
from morag.client.errors import NotOffered, OutcomeUnknown, ServerUnreachable, UnexpectedAnswer
from morag.client.listing import Listing
from morag.model.references import HeadStatus, ReferenceHistory
from morag.model.results import CommitResult, Page

__all__ = [
    "Client",
    "CommitResult",
    "Configuration",
    "HeadStatus",
    "Listing",
    "NotOffered",
    "OutcomeUnknown",
    "Page",
    "ReferenceHistory",
    "ServerUnreachable",
    "UnexpectedAnswer",
]
