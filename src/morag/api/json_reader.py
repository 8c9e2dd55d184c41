"""Reads JSON bodies within limits. Refusing a body must be cheap.

Decoding holds the interpreter's lock. So a large body is first cut into the items of its list,
which is fast and creates no objects, and then the items are decoded one by one.
"""

from __future__ import annotations

import re
from json import JSONDecoder
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from morag.errors import BadRequest, RequestTooLarge
from morag.model.lenient_json import converted

T = TypeVar("T")

LARGEST_ITEM_BYTES: Final = 2 * 1024 * 1024
"""The limit of one operation, or one key with its contents."""
LARGEST_PLAIN_BYTES: Final = 1024 * 1024
"""The limit of a body without its long list."""
MOST_VALUES: Final = 4_000_000
"""The limit of fields and items in a list, at any depth: they take more memory than their text."""
LENIENT_BYTES: Final = 2 * 1024 * 1024
LENIENT_VALUES: Final = 100_000
LENIENT_DEPTH: Final = 100

_AT_ONCE_BYTES: Final = 64 * 1024
_FIRST_VALUE: Final = JSONDecoder()  # Ignores everything after the first value.
_OBJECTS_PER_ITEM: Final = 16  # On average; an operation has three or four, nested.
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
# Strings are skipped as a whole. An unterminated string also matches, because otherwise the search
# would start again at each of its quotes.
_TOKENS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.DOTALL)


class _AnyObject(Struct, gc=False):
    """An item that is only counted."""


_OBJECTS: Final = msgspec.json.Decoder(list[_AnyObject] | None)
_ITEMS: Final = msgspec.json.Decoder(list[Raw])


class Body(Generic[T]):
    """Reads one kind of body. An empty body and null are None.

    `items` has the name of the field with the list that may be long, and the type of its items.
    `counted` are the fields that count as operations.
    """

    def __init__(
        self,
        type: Any,
        *,
        items: tuple[str, Any] | None = None,
        counted: tuple[str, ...] = (),
    ) -> None:
        self._type = type | None
        self._decoder = msgspec.json.Decoder(self._type)
        self._items = items
        self._counted = counted
        if items is not None:
            self._item_decoder = msgspec.json.Decoder(items[1])
            names = {field.name: field.encode_name for field in msgspec.structs.fields(type)}
            self._items_name = names[items[0]]
            raw_fields = [(name, Raw | UnsetType, UNSET) for name in names.values()]
            self._envelope = msgspec.json.Decoder(msgspec.defstruct("Envelope", raw_fields))

    def read(self, body: bytes, most_items: int) -> T | None:
        if not body or body.isspace():
            return None
        try:
            if len(body) <= _AT_ONCE_BYTES:
                found: T | None = self._decoder.decode(body)
            else:
                found = self._read_large(body, most_items)
        except _UNREADABLE as problem:
            found = self._read_leniently(body, problem)
        for name in self._counted:
            listed = getattr(found, name, None)
            if listed is not None:
                _check_count(len(listed), most_items)
        return found

    def _read_large(self, body: bytes, most_items: int) -> T | None:
        if self._items is None:
            _check_plain(len(body))
            return self._decoder.decode(body)  # type: ignore[no-any-return]
        fields = msgspec.structs.asdict(self._envelope.decode(body))
        listed = bytes(fields.pop(self._items_name) or b"null")
        given = [(name, raw) for name, raw in fields.items() if raw is not UNSET]
        rest = b",".join(b'"%b":%b' % (name.encode(), raw) for name, raw in given)
        _check_plain(len(rest))
        try:
            count = _counted(listed, most_items)
        except msgspec.ValidationError as problem:
            raise self._placed(problem, "") from None
        found = self._decoder.decode(b"{%b}" % rest)
        if count is None:
            return found  # type: ignore[no-any-return]
        items = tuple(self._item(*numbered) for numbered in enumerate(_ITEMS.decode(listed)))
        return msgspec.structs.replace(found, **{self._items[0]: items})  # type: ignore[no-any-return]

    def _item(self, number: int, raw: Raw) -> Any:
        size = len(memoryview(raw))
        if size > LARGEST_ITEM_BYTES:
            raise RequestTooLarge(
                f"The request body has {size} bytes in {self._items_name}[{number}], but at most "
                f"{LARGEST_ITEM_BYTES} are accepted there"
            )
        try:
            return self._item_decoder.decode(raw)
        except msgspec.ValidationError as problem:
            raise self._placed(problem, f"[{number}]") from None

    def _placed(self, problem: msgspec.ValidationError, position: str) -> msgspec.ValidationError:
        """The problem with its position in the whole body; the decoder saw only a part."""
        where, text = f"`$.{self._items_name}{position}", str(problem)
        if "`$" not in text:  # The part itself is wrong, not something in it.
            return msgspec.ValidationError(f"{text} - at {where}`")
        return msgspec.ValidationError(text.replace("`$", where, 1))

    def _read_leniently(self, body: bytes, problem: Exception) -> T | None:
        refusal = f"The request body cannot be read: {problem}"
        if not _is_modest(body):
            raise BadRequest(
                f"{refusal}. Only bodies of up to {LENIENT_BYTES} bytes, {LENIENT_VALUES} values"
                f" and {LENIENT_DEPTH} levels are also accepted with small deviations, such as a"
                " number sent as a string"
            )
        try:
            plain, _ = _FIRST_VALUE.raw_decode(body.decode().lstrip())
            msgspec.json.encode(plain)  # Refuses lone surrogates, which cannot be stored.
            found: T | None = converted(plain, self._type)
        except (ValueError, RecursionError):
            raise BadRequest(refusal) from None
        return found


def _counted(listed: bytes, most_items: int) -> int | None:
    """The number of items, counted without creating them; None if there is no list.

    Refuses a list with too many. Braces and commas are counted first, also those in strings: that
    is faster.
    """
    if listed.count(b",") > MOST_VALUES:
        raise RequestTooLarge(
            f"The request has more than {MOST_VALUES} fields and items in its list; send several"
            " requests"
        )
    if listed.count(b"{") > _OBJECTS_PER_ITEM * most_items:
        raise RequestTooLarge(
            f"The request has more than {_OBJECTS_PER_ITEM * most_items} objects in its list, but"
            f" at most {most_items} operations or keys are accepted; send several requests"
        )
    objects = _OBJECTS.decode(listed)
    if objects is None:
        return None
    _check_count(len(objects), most_items)
    return len(objects)


def _check_plain(size: int) -> None:
    if size > LARGEST_PLAIN_BYTES:
        raise RequestTooLarge(
            f"The request body has {size} bytes where at most {LARGEST_PLAIN_BYTES} are accepted:"
            " only lists of operations and keys may be longer"
        )


def _check_count(count: int, most: int) -> None:
    if count > most:
        raise RequestTooLarge(
            f"The request has {count} operations or keys, but at most {most} are accepted;"
            " send several requests"
        )


def _is_modest(body: bytes) -> bool:
    """Whether the slow but lenient way to read the body takes little time and memory."""
    if len(body) > LENIENT_BYTES:
        return False
    values, depth = 1, 0
    for token in _TOKENS.finditer(body):
        match body[token.start()]:
            case 0x2C:  # ,
                values += 1
            case 0x5B | 0x7B:  # [ {
                values += 1
                depth += 1
                if depth > LENIENT_DEPTH:
                    return False
            case 0x5D | 0x7D:  # ] }
                depth -= 1
        if values > LENIENT_VALUES:
            return False
    return True
