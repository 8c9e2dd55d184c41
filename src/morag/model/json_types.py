"""Types of fields whose JSON schema has a format. Decoders do not check the format."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta

INT32_LIMIT: Final = 1 << 31
INT64_LIMIT: Final = 1 << 63

Int32: TypeAlias = Annotated[int, Meta(extra_json_schema={"format": "int32"})]
Int64: TypeAlias = Annotated[int, Meta(extra_json_schema={"format": "int64"})]
Time: TypeAlias = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
