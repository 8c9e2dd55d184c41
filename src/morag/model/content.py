"""Content types: tables, views, functions and namespaces.

A content type is one struct here and one entry in `PAYLOADS`. The structs are also the JSON of the
API. `omit_defaults` is set where Nessie omits fields without a value; elsewhere it writes null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct, field

from morag.errors import BadRequest
from morag.model.json_types import INT32_LIMIT, INT64_LIMIT, Int32, Int64
from morag.model.keys import check_elements, check_unicode

if TYPE_CHECKING:
    from collections.abc import Sequence


class IcebergTable(
    Struct, frozen=True, kw_only=True, tag="ICEBERG_TABLE", tag_field="type", rename="camel"
):
    """A snapshot of an Iceberg table: its metadata file and the ids that are current in it."""

    id: str | None = None
    metadata_location: str
    snapshot_id: Int64
    schema_id: Int32
    spec_id: Int32
    sort_order_id: Int32


class IcebergView(
    Struct,
    frozen=True,
    kw_only=True,
    tag="ICEBERG_VIEW",
    tag_field="type",
    rename="camel",
    omit_defaults=True,
):
    """A version of an Iceberg view."""

    id: str | None = None
    metadata_location: str
    version_id: Int64
    schema_id: Int32
    sql_text: str | None = None
    dialect: str | None = None


class DeltaLakeTable(
    Struct, frozen=True, kw_only=True, tag="DELTA_LAKE_TABLE", tag_field="type", rename="camel"
):
    """The locations of a Delta table's log and checkpoints, oldest first."""

    id: str | None = None
    metadata_location_history: tuple[str, ...] = ()
    checkpoint_location_history: tuple[str, ...] = ()
    last_checkpoint: str | None = None


class Namespace(
    Struct,
    frozen=True,
    kw_only=True,
    tag="NAMESPACE",
    tag_field="type",
    rename="camel",
    omit_defaults=True,
):
    """A parent of other keys. Its elements may differ from its key, as in Nessie.

    Properties keep the order in which they were given: it is part of the stored bytes.
    """

    id: str | None = field(default_factory=lambda: None)  # Sent even if it is null.
    elements: tuple[str, ...] = field(default_factory=lambda: ())  # Sent even if it is empty.
    properties: dict[str, str] = {}

    @classmethod
    def of(cls, *elements: str) -> Namespace:
        return cls(elements=elements)


class UDF(
    Struct,
    frozen=True,
    kw_only=True,
    tag="UDF",
    tag_field="type",
    rename="camel",
    omit_defaults=True,
):
    """A user defined function."""

    id: str | None = None
    sql_text: str | None = None
    dialect: str | None = None
    version_id: str | None = None
    signature_id: str | None = None
    metadata_location: str | None = None


Content: TypeAlias = IcebergTable | IcebergView | DeltaLakeTable | Namespace | UDF

PAYLOADS: Final[dict[type[Content], int]] = {
    IcebergTable: 1,
    DeltaLakeTable: 2,
    IcebergView: 3,
    Namespace: 4,
    UDF: 5,
}
"""The number that stands for a content type in an index entry and in a stored value."""

TYPE_NAMES: Final[dict[int, str]] = {
    payload: str(kind.__struct_config__.tag) for kind, payload in PAYLOADS.items()
}
NAMESPACE_PAYLOAD: Final = PAYLOADS[Namespace]


def check_content(content: Content) -> None:
    """Refuse content that could not be stored and read back as it is."""
    match content:
        case IcebergTable():
            _check_texts(content, content.metadata_location)
            _check_numbers(
                content,
                ("snapshotId", content.snapshot_id, INT64_LIMIT),
                ("schemaId", content.schema_id, INT32_LIMIT),
                ("specId", content.spec_id, INT32_LIMIT),
                ("sortOrderId", content.sort_order_id, INT32_LIMIT),
            )
        case IcebergView():
            _check_texts(content, content.metadata_location)
            _check_optional(content, content.sql_text, content.dialect)
            _check_numbers(
                content,
                ("versionId", content.version_id, INT64_LIMIT),
                ("schemaId", content.schema_id, INT32_LIMIT),
            )
        case DeltaLakeTable():
            _check_listed(content, "metadataLocationHistory", content.metadata_location_history)
            _check_listed(content, "checkpointLocationHistory", content.checkpoint_location_history)
            _check_optional(content, content.last_checkpoint)
        case Namespace():
            _check_list(content, "elements", content.elements)
            check_elements("Namespace", content.elements)
            if "." in content.elements:
                raise BadRequest(
                    f"Namespace '[{', '.join(content.elements)}]' must not contain a '.' element"
                )
            if not isinstance(content.properties, dict):
                raise BadRequest("NAMESPACE: properties must be a dict from text to text")
            _check_texts(content, *content.properties, *content.properties.values())
        case UDF():
            _check_optional(
                content,
                content.sql_text,
                content.dialect,
                content.version_id,
                content.signature_id,
                content.metadata_location,
            )
        case _:
            raise BadRequest(
                f"{type(content).__name__} is not a content type; known: "
                f"{', '.join(sorted(TYPE_NAMES.values()))}"
            )
    if content.id is not None:
        _check_texts(content, content.id)


def type_name(content: Content) -> str:
    return TYPE_NAMES[PAYLOADS[type(content)]]


def _check_optional(content: Content, *texts: str | None) -> None:
    _check_texts(content, *(text for text in texts if text is not None))


def _check_texts(content: Content, *texts: object) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise BadRequest(f"{type_name(content)}: expected a text, got {text!r}")
        if not text.isascii():
            check_unicode(type_name(content), text)


def _check_listed(content: Content, field: str, texts: Sequence[object]) -> None:
    _check_list(content, field, texts)
    _check_texts(content, *texts)


def _check_list(content: Content, field: str, value: object) -> None:
    """Refuse other sequences: a single text is a sequence of texts, too, but never meant as one."""
    if not isinstance(value, tuple | list):
        raise BadRequest(f"{type_name(content)}: {field} must be a tuple of texts, not {value!r}")


def _check_numbers(content: Content, *numbers: tuple[str, object, int]) -> None:
    """Each has the name of its field and the limit of its type."""
    for name, value, limit in numbers:
        if type(value) is not int or not -limit <= value < limit:  # True would be stored as 1.
            raise BadRequest(
                f"{type_name(content)}: {name} must be a whole number from {-limit} to {limit - 1}"
            )
