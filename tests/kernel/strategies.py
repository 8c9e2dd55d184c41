"""Strategies for random histories: keys, contents, and intents that become operations."""

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
    ContentKey.of("a!"),  # Sorts after all keys in the namespace `a`.
    ContentKey.of("a", "b", "c"),
    ContentKey.of("c"),
    ContentKey.of("ns", "x"),
    ContentKey.of("ns", "y"),
    ContentKey.of("ns", "\uff5e"),  # Java sorts it after the next one, UTF-8 before it.
    ContentKey.of("ns", "\U0001f600"),
    ContentKey.of("\uff5e"),
    ContentKey.of("\U0001f600"),
    ContentKey.of("ß.*"),
]
MANY_KEYS: Final = [ContentKey.of(f"t{n:02}") for n in range(40)]
"""Enough keys for commits that make stripes."""


class Action(Enum):
    PUT = "put"
    """Create the key, or update it with its content id."""
    DELETE = "delete"
    RENAME = "rename"
    RENAME_AND_CHANGE = "rename and change"
    READD = "re-add"
    SAME = "same"
    """Put the existing content again."""
    UNCHANGED = "unchanged"
    PUT_WITHOUT_ID = "put without id"
    PUT_WITH_ANY_ID = "put with any id"
    PUT_OTHER_TYPE = "put other type"


_MOSTLY: Final = [Action.PUT] * 6 + [Action.DELETE] * 2 + [Action.RENAME] * 2 + [Action.READD] * 2
_SOMETIMES: Final = [Action.RENAME_AND_CHANGE, Action.SAME, Action.UNCHANGED]
_WRONG: Final = [Action.PUT_WITHOUT_ID, Action.PUT_WITH_ANY_ID, Action.PUT_OTHER_TYPE]


class Intent(Struct, frozen=True):
    """A change to a state that is not known yet.

    `first` and `second` pick keys. A `plausible` intent picks keys for which it can succeed; others
    pick from all keys, and often conflict.
    """

    action: Action
    first: int
    second: int
    number: int
    plausible: bool

    def operations(self, state: Mapping[ContentKey, Content]) -> Sequence[Operation]:
        present = [key for key in KEYS if key in state]
        free = [key for key in KEYS if key not in state and _has_parent(key, state)]
        sources = present if self.plausible and present else KEYS
        targets = free if self.plausible and free else KEYS
        key = sources[self.first % len(sources)]
        content = state.get(key)
        match self.action:
            case Action.PUT:
                key = KEYS[self.first % len(KEYS)]
                if self.plausible and not _has_parent(key, state):
                    key = targets[self.first % len(targets)]
                content = state.get(key)
                return [
                    Put(
                        key,
                        new_content(key, self.number)
                        if content is None
                        else self._changed(content),
                    )
                ]
            case Action.DELETE:
                return [Delete(key)]
            case Action.RENAME | Action.RENAME_AND_CHANGE:
                to = targets[self.second % len(targets)]
                if content is None:
                    return [Delete(key), Put(to, new_content(to, self.number))]
                moved = content if self.action is Action.RENAME else self._changed(content)
                pair: list[Operation] = [Delete(key), Put(to, moved)]
                return pair if self.number % 2 else pair[::-1]
            case Action.READD:
                return [Delete(key), Put(key, new_content(key, self.number))]
            case Action.SAME:
                return [Put(key, content or new_content(key, self.number))]
            case Action.UNCHANGED:
                return [Unchanged(key)]
            case Action.PUT_WITHOUT_ID:
                return [Put(key, new_content(key, self.number))]
            case Action.PUT_WITH_ANY_ID:
                ids = [content.id for content in state.values()] or ["no-uuid"]
                to = KEYS[self.second % len(KEYS)]
                any_id = ids[self.first % len(ids)]
                return [Put(to, msgspec.structs.replace(new_content(to, self.number), id=any_id))]
            case Action.PUT_OTHER_TYPE:
                other: Content = UDF(id=content.id) if content else UDF()
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
    """The first content of a key: for parents of other keys mostly a namespace."""
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


_plausible = st.sampled_from([True] * 9 + [False])
_intent = st.builds(
    Intent,
    st.sampled_from(_MOSTLY * 6 + _SOMETIMES * 5 + _WRONG),
    st.integers(0, 12),
    st.integers(0, 12),
    st.integers(0, 9),
    _plausible,
)
intents = st.lists(_intent, min_size=1, max_size=4)
"""The intents of one commit."""
histories = st.lists(intents, max_size=3)
"""The intents of successive commits."""

content_keys = st.sampled_from(KEYS)
behaviors = st.sampled_from(
    [MergeBehavior.NORMAL] * 4 + [MergeBehavior.FORCE] * 2 + [MergeBehavior.DROP]
)


class RuleIntent(Struct, frozen=True):
    """A merge behavior for a key: one that the source changed, if plausible, otherwise any."""

    pick: int
    behavior: MergeBehavior
    plausible: bool

    def rule(self, touched: Sequence[ContentKey]) -> MergeKey:
        keys = touched if self.plausible and touched else KEYS
        return MergeKey(keys[self.pick % len(keys)], self.behavior)


rule_intents = st.lists(
    st.builds(RuleIntent, st.integers(0, 12), st.sampled_from(MergeBehavior), _plausible),
    max_size=2,
)

# The parts of a note share no letters: the id does not depend on which part holds a text.
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
