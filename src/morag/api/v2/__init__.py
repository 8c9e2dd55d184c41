"""REST API version 2. Each handler decodes, calls one service method, and encodes."""

from __future__ import annotations

from typing import Final

# A module declares its endpoints when it is imported.
from morag.api.v2 import changes, config, contents, listings, references  # noqa: F401
from morag.api.v2.declared import endpoint

ENDPOINTS: Final = tuple(endpoint.list)
