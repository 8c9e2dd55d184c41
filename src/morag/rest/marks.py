"""Marks on fields that the OpenAPI document reads; decoding ignores them."""

from __future__ import annotations

from typing import Final

from msgspec import Meta

ALWAYS_SENT: Final = Meta(extra={"mark": "always sent"})
"""Morag always sends the field, and never as null. Other servers may leave it out."""
NEEDED: Final = Meta(extra={"mark": "needed"})
"""Clients must send the field. It has a default, because the handler reports its absence."""
SET_BY_SERVER: Final = Meta(description="Set by the server.", extra={"mark": "set by server"})
"""Clients may send the field only if it is empty."""
