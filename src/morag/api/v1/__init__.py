"""REST API version 1: what older clients speak. The same services, other spellings."""

from __future__ import annotations

from typing import Final

# A module declares its endpoints when it is imported.
from morag.api.v1 import changes, contents, listings, namespaces, references  # noqa: F401
from morag.api.v1.declared import endpoint

ENDPOINTS: Final = tuple(endpoint.list)
