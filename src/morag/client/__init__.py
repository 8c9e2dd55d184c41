"""A client for catalogs elsewhere, over REST API v2: Morag's servers, and the original's, too.

    with Client("http://127.0.0.1:19120/api/v2") as catalog:
        catalog.commit("main", [Put(key, content)], "create a table")

It offers what a `Repository` offers, as far as the API carries it, under the same names, with the
same structs and the same errors. It knows the nouns of `model` and HTTP, and nothing of storage.
"""

from __future__ import annotations

from morag.client.client import Client
from morag.client.errors import NotOffered, OutcomeUnknown, ServerUnreachable, UnexpectedAnswer
from morag.client.paging import Listing, Page
from morag.client.results import (
    CommitResult,
    Configuration,
    HeadStatus,
    ReferenceHistory,
)

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
