"""REST API version 1, for older clients: the same actions with other parameters and bodies."""

from __future__ import annotations

from typing import Final

# A module declares its endpoints when it is imported.
from morag.api.v1 import changes, contents, listings, namespaces, references  # noqa: F401
from morag.api.v1.parameters import endpoint

ENDPOINTS: Final = tuple(endpoint.list)
