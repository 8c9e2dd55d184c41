"""REST API version 2: each endpoint parses and checks a request, then calls an action."""

from __future__ import annotations

from typing import Final

# A module declares its endpoints when it is imported.
from morag.api.v2 import changes, config, contents, listings, references  # noqa: F401
from morag.api.v2.parameters import endpoint

ENDPOINTS: Final = tuple(endpoint.list)
