"""A recorded database of Nessie, and the responses of Nessie's REST API to reads of it.

Nessie ran with small index sizes (1300 bytes, segments of 2600 bytes, two inlined stripes, eight
parents), so a few hundred commits show every shape of an index.
"""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, field

from morag.backend.base import RefSwap
from morag.backend.memory import MemoryBackend
from morag.config import Settings
from morag.format import object_codec as codec
from morag.format.ids import NO_ANCESTOR
from morag.format.objects import Commit, Obj
from morag.format.records import ObjId, Ref, Row
from morag.format.refs import decode_previous
from morag.format.rows import NEVER_REFERENCED
from morag.model.content import Content
from morag.model.keys import ContentKey
from morag.model.meta import CommitMeta
from morag.model.operations import Delete, Put
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist

T = TypeVar("T")
DATA = Path(__file__).parent.parent / "data" / "format"


class Reference(Struct, frozen=True):
    type: str
    name: str
    hash: str

    @property
    def row_name(self) -> str:
        return ("refs/heads/" if self.type == "BRANCH" else "refs/tags/") + self.name


class Entry(Struct, frozen=True, rename="camel"):
    type: str
    name: ContentKey
    content_id: str
    content: Content


class SameAs(Struct, frozen=True):
    """Equal responses for several references are recorded once; the others refer to that one."""

    name: str = field(name="same-as")


class LogEntry(Struct, frozen=True, rename="camel"):
    commit_meta: CommitMeta
    operations: list[Put | Delete] | None = None


Request: TypeAlias = list[tuple[str, tuple[str, ...]]]


class Api(Struct, frozen=True, rename="camel"):
    references: list[Reference]
    entries: dict[str, list[Entry] | SameAs]
    log: dict[str, list[str] | SameAs]
    log_entries: dict[str, LogEntry]
    request_order: dict[str, Request]
    request_properties: dict[str, list[str]]

    def entries_of(self, name: str) -> list[Entry]:
        return answer(self.entries, name)

    def log_of(self, name: str) -> list[str]:
        return answer(self.log, name)


def answer(answers: dict[str, list[T] | SameAs], name: str) -> list[T]:
    found = answers[name]
    return answer(answers, found.name) if isinstance(found, SameAs) else found


@cache
def api() -> Api:
    return msgspec.json.decode(
        gzip.decompress((DATA / "golden-api.json.gz").read_bytes()), type=Api
    )


@cache
def records(table: str) -> list[dict[str, Any]]:
    """The dumped rows of a table, each as a dict of its columns."""
    lines = unzipped("golden-rows.jsonl.gz").splitlines()
    return [r for line in lines if (r := json.loads(line, object_hook=_bytes))["table"] == table]


def unzipped(name: str) -> bytes:
    return gzip.decompress((DATA / name).read_bytes())


def _bytes(found: dict[str, Any]) -> Any:
    return bytes.fromhex(found["hex"]) if found.keys() == {"hex"} else found


@cache
def rows() -> list[Row]:
    return [
        Row(
            r["obj_id"],
            r["obj_type"],
            r["obj_value"].removesuffix(NEVER_REFERENCED),
            r["obj_vers"],
            r["obj_ref"],
        )
        for r in records("objs2")
    ]


@cache
def refs() -> dict[str, Ref]:
    return {
        r["ref_name"]: Ref(
            r["ref_name"],
            r["pointer"],
            r["deleted"],
            r["created_at"] or 0,
            r["ext_info"],
            decode_previous(r["prev_ptr"]),
        )
        for r in records("refs2")
    }


@cache
def objects() -> dict[ObjId, Obj]:
    return {row.id: codec.decode(row) for row in rows()}


@cache
def of_kind(kind: type[T]) -> dict[ObjId, T]:
    found: dict[ObjId, T] = {id: o for id, o in objects().items() if isinstance(o, kind)}
    assert found, f"the recording has no {kind.__name__}"
    return found


def store(settings: Settings) -> Persist:
    """The whole database on a memory backend."""
    backend = MemoryBackend()
    backend.insert_rows("", rows())
    for name, ref in refs().items():
        backend.swap_ref("", RefSwap(name, None, ref))
    return Persist(backend, ObjectCache(1 << 24), settings, lambda: 0)


def parent_of(commit: Commit) -> Commit | None:
    return None if commit.parent == NO_ANCESTOR else of_kind(Commit)[commit.parent]
