"""Creates the references of an import, many in one step, with the times of their creation."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from morag.backend.base import RefSwap
from morag.errors import ArchiveInvalid, RepositoryExists, StoreBusy
from morag.format.ids import ID_BYTES, NO_ANCESTOR
from morag.format.index_entries import payload_of, value_of
from morag.index.keys import key_text, text_key
from morag.index.layered import index_of
from morag.logic.commits import Add, Remove, build_commit
from morag.logic.history import head_commit
from morag.logic.internal_refs import REFS, internal_draft, missing
from morag.logic.name_commits import initial_state
from morag.logic.reference_reader import INTERNAL, short_name
from morag.model.times import instant_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from morag.format.objects import Obj
    from morag.format.records import Ref
    from morag.logic.retry import Retries
    from morag.persist.persist import Persist

_AT_ONCE: Final = 500


def create_all(persist: Persist, retries: Retries, references: Iterable[Ref]) -> int:
    """Create the references that do not exist; returns how many there are.

    References that an interrupted import created are left as they are. Nobody else changes
    references during an import, so a change that failed was made by an attempt whose reply was
    lost: the next attempt finds it.
    """
    references, count = iter(references), 0
    while some := list(islice(references, _AT_ONCE)):
        for ref in some:
            _check(persist, ref)
        _check_pointers(persist, some)
        created = _without_lost_notes(persist, some)
        retries.repeat("create references", partial(_create, persist, created))
        count += len(some)
    return count


def drop_all(persist: Persist) -> None:
    """Drop the references that an interrupted import created.

    A source that is in use may have moved or dropped them meanwhile.
    """
    while (names := persist.ref(REFS)) is not None:
        head = head_commit(persist, names.pointer)
        some = list(islice(index_of(persist, head).items(), _AT_ONCE))
        if not some:
            return
        for ref in persist.refs([key_text(key) for key, _ in some]).values():
            persist.swap_ref(ref.name, ref, None)
        removes = [Remove(key, payload_of(op), value_of(op)) for key, op in some]
        headers = {"timestamp": instant_text(persist.clock_nanos())}
        message = f"Drop {len(some)} references of an interrupted import"
        built = build_commit(persist, head, internal_draft(message, headers, removes=removes))
        persist.store_and_keep([*built.indexes, built.commit])
        persist.swap_ref(REFS, names, persist.moved(names, built.commit.id))


def _create(persist: Persist, references: Sequence[Ref]) -> None:
    names = persist.ref(REFS)
    if names is None:
        raise missing(REFS)
    head = head_commit(persist, names.pointer)
    keys = {text_key(ref.name): ref for ref in references}
    if len(keys) < len(references):
        raise ArchiveInvalid("The export has two references of the same name")
    known = index_of(persist, head).get_all(keys)
    for key, op in known.items():
        if value_of(op) != initial_state(keys[key]).id:
            raise RepositoryExists(
                f"Reference '{short_name(keys[key].name)}' exists already, and differs"
            )
    new = {key: ref for key, ref in keys.items() if key not in known}
    objects: list[Obj] = []
    swaps = []
    if new:
        records = [initial_state(ref) for ref in new.values()]
        adds = [Add(key, 0, record.id) for key, record in zip(new, records, strict=True)]
        headers = {"timestamp": instant_text(persist.clock_nanos())}
        draft = internal_draft(f"Import {len(new)} references", headers, adds)
        built = build_commit(persist, head, draft)
        objects = [*records, *built.indexes, built.commit]
        swaps.append(RefSwap(REFS, names, persist.moved(names, built.commit.id)))
    stored = persist.refs([ref.name for ref in references])
    swaps += [RefSwap(ref.name, None, ref) for ref in references if ref.name not in stored]
    if not swaps:
        return
    if persist.swaps_together:
        is_done = persist.publish_all(objects, swaps, ())
    else:
        persist.store_and_keep(objects)
        # The names first: a name without a ref is an unfinished creation.
        is_done = all(persist.swap_ref(each.name, each.expected, each.new) for each in swaps)
    if not is_done:
        raise StoreBusy("References could not be created: another process changed them")


def _without_lost_notes(persist: Persist, references: Sequence[Ref]) -> list[Ref]:
    """Without the ids of notes that are not stored: Nessie exports tags, but not their notes."""
    notes = {ref.extended_info for ref in references if ref.extended_info is not None}
    lost = notes - persist.find(list(notes)).keys() if notes else notes
    return [
        replace(ref, extended_info=None) if ref.extended_info in lost else ref for ref in references
    ]


def _check(persist: Persist, ref: Ref) -> None:
    if not ref.name or ref.name.startswith(INTERNAL):
        raise ArchiveInvalid(f"The export has a reference with the bad name '{ref.name}'")
    if len(ref.pointer) != ID_BYTES:
        raise ArchiveInvalid(f"Reference '{ref.name}' of the export has no readable pointer")
    persist.check_name(ref.name)


def _check_pointers(persist: Persist, references: Sequence[Ref]) -> None:
    pointers = {ref.pointer: ref for ref in references if ref.pointer != NO_ANCESTOR}
    stored = persist.find(list(pointers))
    for pointer, ref in pointers.items():
        if pointer not in stored:
            raise ArchiveInvalid(
                f"Reference '{ref.name}' points to commit {pointer.hex()}, which the export "
                "does not have"
            )
