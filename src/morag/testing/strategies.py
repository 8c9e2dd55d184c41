"""What random histories are made of: keys, contents, and wishes that become operations."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec
from hypothesis import strategies as st
from msgspec import Struct

from morag.model.content import UDF, Content, DeltaLakeTable, IcebergTable, IcebergView, Namespace
from morag.model.keys import ContentKey
from morag.model.merging import MergeBehavior, MergeKey
from morag.model.operations import Delete, Operation, Put, Unchanged
from morag.model.references import TagNote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAMESPACES: Final = [ContentKey.of("a"), ContentKey.of("a", "b"), ContentKey.of("ns")]
KEYS: Final = [
    *NAMESPACES,
    ContentKey.of("a!"),  # Sorts behind everything in the namespace `a`.
    ContentKey.of("a", "b", "c"),
    ContentKey.of("c"),
    ContentKey.of("ns", "x"),
    ContentKey.of("ns", "y"),
    ContentKey.of("ns", "\uff5e"),  # Java sorts it behind the next one, UTF-8 before it.
    ContentKey.of("ns", "\U0001f600"),
    ContentKey.of("\uff5e"),
    ContentKey.of("\U0001f600"),
    ContentKey.of("ß.*"),
]
MANY_KEYS: Final = [ContentKey.of(f"t{n:02}") for n in range(40)]
"""For commits that are large enough to make stripes."""


class Will(Enum):
    PUT = "put"
    """Create the key, or update it with the id it has."""
    DELETE = "delete"
    RENAME = "rename"
    RENAME_AND_CHANGE = "rename and change"
    READD = "re-add"
    SAME = "same"
    """Put again what is there."""
    UNCHANGED = "unchanged"
    PUT_WITHOUT_ID = "put without id"
    PUT_WITH_ANY_ID = "put with any id"
    PUT_OTHER_TYPE = "put other type"


_MOSTLY: Final = [Will.PUT] * 6 + [Will.DELETE] * 2 + [Will.RENAME] * 2 + [Will.READD] * 2
_SOMETIMES: Final = [Will.RENAME_AND_CHANGE, Will.SAME, Will.UNCHANGED]
_WRONG: Final = [Will.PUT_WITHOUT_ID, Will.PUT_WITH_ANY_ID, Will.PUT_OTHER_TYPE]


class Wish(Struct, frozen=True):
    """One thing to do to a state that is not known yet.

    `first` and `second` pick keys. A `wise` wish picks among those where it has a chance; others
    pick among all, and many of them come to conflicts.
    """

    will: Will
    first: int
    second: int
    number: int
    wise: bool

    def operations(self, state: Mapping[ContentKey, Content]) -> Sequence[Operation]:
        here = [key for key in KEYS if key in state]
        free = [key for key in KEYS if key not in state and _has_parent(key, state)]
        some = here if self.wise and here else KEYS
        none = free if self.wise and free else KEYS
        key = some[self.first % len(some)]
        held = state.get(key)
        match self.will:
            case Will.PUT:
                key = KEYS[self.first % len(KEYS)]
                if self.wise and not _has_parent(key, state):
                    key = none[self.first % len(none)]
                held = state.get(key)
                return [
                    Put(key, new_content(key, self.number) if held is None else self._changed(held))
                ]
            case Will.DELETE:
                return [Delete(key)]
            case Will.RENAME | Will.RENAME_AND_CHANGE:
                to = none[self.second % len(none)]
                if held is None:
                    return [Delete(key), Put(to, new_content(to, self.number))]
                moved = held if self.will is Will.RENAME else self._changed(held)
                pair: list[Operation] = [Delete(key), Put(to, moved)]
                return pair if self.number % 2 else pair[::-1]
            case Will.READD:
                return [Delete(key), Put(key, new_content(key, self.number))]
            case Will.SAME:
                return [Put(key, held or new_content(key, self.number))]
            case Will.UNCHANGED:
                return [Unchanged(key)]
            case Will.PUT_WITHOUT_ID:
                return [Put(key, new_content(key, self.number))]
            case Will.PUT_WITH_ANY_ID:
                ids = [content.id for content in state.values()] or ["no-uuid"]
                to = KEYS[self.second % len(KEYS)]
                any_id = ids[self.first % len(ids)]
                return [Put(to, msgspec.structs.replace(new_content(to, self.number), id=any_id))]
            case Will.PUT_OTHER_TYPE:
                other: Content = UDF(id=held.id) if held else UDF()
                return [Put(key, other)]

    def _changed(self, content: Content) -> Content:
        """A new version of the same content."""
        replace, number = msgspec.structs.replace, self.number
        match content:
            case IcebergTable():
                return replace(content, snapshot_id=number)
            case IcebergView():
                return replace(content, version_id=number)
            case DeltaLakeTable():
                return replace(content, last_checkpoint=f"checkpoint {number}")
            case Namespace():
                return replace(content, properties={"number": str(number)})
            case UDF():
                return replace(content, sql_text=f"SELECT {number}")


def new_content(key: ContentKey, number: int) -> Content:
    """What a key holds at first: mostly a namespace where others can be inside."""
    if key in NAMESPACES and number % 5:
        return Namespace(elements=key.elements)
    match number % 4:
        case 0:
            return IcebergView(metadata_location="v", version_id=number, schema_id=0)
        case 1:
            return DeltaLakeTable(last_checkpoint=f"checkpoint {number}")
        case _:
            return table(number)


def table(number: int) -> IcebergTable:
    return IcebergTable(
        metadata_location="t", snapshot_id=number, schema_id=0, spec_id=0, sort_order_id=0
    )


_wisely = st.sampled_from([True] * 9 + [False])
_wish = st.builds(
    Wish,
    st.sampled_from(_MOSTLY * 6 + _SOMETIMES * 5 + _WRONG),
    st.integers(0, 12),
    st.integers(0, 12),
    st.integers(0, 9),
    _wisely,
)
wishes = st.lists(_wish, min_size=1, max_size=4)
"""For one commit."""
histories = st.lists(wishes, max_size=3)
"""For commits on top of each other."""

content_keys = st.sampled_from(KEYS)
behaviors = st.sampled_from(
    [MergeBehavior.NORMAL] * 4 + [MergeBehavior.FORCE] * 2 + [MergeBehavior.DROP]
)


class RuleWish(Struct, frozen=True):
    """A merge behavior for a key among those that the source changed, or else for any key."""

    pick: int
    behavior: MergeBehavior
    wise: bool

    def rule(self, touched: Sequence[ContentKey]) -> MergeKey:
        keys = touched if self.wise and touched else KEYS
        return MergeKey(keys[self.pick % len(keys)], self.behavior)


rule_wishes = st.lists(
    st.builds(RuleWish, st.integers(0, 12), st.sampled_from(MergeBehavior), _wisely), max_size=2
)

# The parts of a note have no common letters: one that says the same in other parts has its id.
tag_notes = st.none() | st.builds(
    TagNote,
    st.none() | st.text("xyz\U0001f600", max_size=3),
    st.dictionaries(st.sampled_from("ab"), st.tuples(st.text("12", min_size=1, max_size=3))),
    st.none() | st.sampled_from([b"", b"\xff", b"\xff\0"]),
)

relatives = st.lists(st.tuples(st.sampled_from("~^"), st.integers(1, 7)), max_size=3)
"""Steps such as `~2^1`."""


def _has_parent(key: ContentKey, state: Mapping[ContentKey, Content]) -> bool:
    return not key.parent.elements or isinstance(state.get(key.parent), Namespace)
