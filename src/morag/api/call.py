"""One call of an endpoint: a request as handlers see it, and the responses that they build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec

from morag.api.http import Request, Response
from morag.api.json_pieces import as_encoded, encoded, ending_with_list, joined, listed
from morag.api.later import (
    AfterLookUp,
    Answer,
    InLane,
    InPieces,
    InThread,
    Pieces,
    PiecesAfterLookUp,
)
from morag.api.query import Query
from morag.errors import BadRequest
from morag.logic.history import TooFar
from morag.model.names import check_hash
from morag.service.ref_resolution import RequestedRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.api.http import Header
    from morag.api.json_reader import Body
    from morag.api.later import Queues
    from morag.model.content import Content
    from morag.model.operations import Delete, Put
    from morag.model.references import Reference
    from morag.model.results import LogEntry
    from morag.rest.responses import ReferenceView
    from morag.service.paging import Items
    from morag.service.service import Service
    from morag.versions.commit_contents import Unencoded
    from morag.versions.reference_lane import ReferenceRequest
    from morag.versions.tickets import Request as LaneRequest

T = TypeVar("T")

Handler: TypeAlias = Callable[["Call"], Answer]
PageOf: TypeAlias = Callable[[tuple[()], str | None, bool], msgspec.Struct]
"""Builds a page from an empty list, the token of the next page, and whether there is one."""

_JSON: Final = ((b"content-type", b"application/json;charset=UTF-8"),)
_ENCODER: Final = msgspec.json.Encoder()
NO_CONTENT: Final = Response(204)


class Limits(msgspec.Struct, frozen=True):
    """The limits of one request; keys and hashes count as operations."""

    max_operations: int = 100_000


NORMAL: Final = Limits()


class Route(msgspec.Struct, frozen=True):
    """The handler of a request, and the parameters in its path, decoded."""

    handler: Handler
    parameters: Mapping[str, str]


class Call:
    """A request that found its handler."""

    __slots__ = ("_limits", "_query", "_queues", "parameters", "request", "service")

    def __init__(
        self,
        request: Request,
        parameters: Mapping[str, str],
        service: Service,
        queues: Queues,
        limits: Limits,
    ) -> None:
        self.request = request
        self.parameters = parameters
        self.service = service
        self._queues = queues
        self._limits = limits
        self._query: Query | None = None

    @property
    def query(self) -> Query:
        if self._query is None:
            self._query = Query(self.request.query)
        return self._query

    def once(self, parse: Callable[[Call], T]) -> T:
        """The result of a function of the head of the request and of settings alone.

        For requests that share a head it is called once, or again as long as it raises an error.
        A handler has one such function.
        """
        memo = self.request.memo
        if memo.result is None:
            memo.result = parse(self)
        result: T = memo.result
        return result

    def body(self, kind: Body[T]) -> T | None:
        """The decoded body of the request; None if it is empty."""
        return kind.read(self.request.body, self._limits.max_operations)

    def in_thread(self, work: Callable[[], Answer]) -> Answer:
        """For a read that may take long."""
        return InThread(self._queues.long_work, self.request.client, work)

    def in_pieces(
        self, work: Callable[[], Pieces], *refs: RequestedRef, plain: bool = False
    ) -> Answer:
        """For an answer that may be large.

        If it is `plain`, no single piece of it takes long, and a short answer is made at once,
        unless a ref has steps: these may take a long walk. If the store is remote, that also takes
        refs, which are looked up first.
        """
        queues = self._queues
        is_remote = queues.reads is not None
        begins = plain and not _have_steps(refs) and (bool(refs) or not is_remote)
        at_once = queues.at_once if begins else None
        pieces = InPieces(queues.long_work, self.request.client, work, queues.monotonic, at_once)
        if begins and is_remote:
            return PiecesAfterLookUp(self.service.look_ups, self._look_up_names(refs), pieces)
        return pieces

    def showing(self, found: Unencoded, show: Callable[[Content], Response]) -> Answer:
        """For a single content: a large one is encoded by a thread."""

        def work() -> Response:
            return show(as_encoded(found.encoded()))

        return self.in_thread(work) if found.is_large else work()

    def before_lane(self, work: Callable[[], Answer]) -> Answer:
        """For a change of a branch that must read from the store before it joins its lane."""
        queue, client = self._queues.long_work, self.request.client
        return InThread(queue, client, work, is_change=True)

    def near(
        self, work: Callable[[], Answer], *refs: RequestedRef, is_change: bool = False
    ) -> Answer:
        """For a quick read: done at once, unless a ref has steps or the store is remote."""
        queues, service = self._queues, self.service
        has_steps = _have_steps(refs)
        queue = queues.long_work if has_steps else queues.reads
        if queue is None:
            return work()
        in_thread = InThread(queue, self.request.client, work, is_change=is_change)
        if has_steps:
            return in_thread
        return AfterLookUp(service.look_ups, self._look_up_names(refs), in_thread)

    def _look_up_names(self, refs: Iterable[RequestedRef]) -> list[str]:
        return [name for ref in refs for name in self.service.refs.look_up_names(ref)]

    def near_lane(self, work: Callable[[bool], Answer], *refs: RequestedRef) -> Answer:
        """For a change of a branch that needs quick reads before it joins its lane.

        `work` gets whether it may walk along a long history. If it would have to, and may not, it
        raises `TooFar`: then a thread does it.
        """

        def at_once() -> Answer:
            try:
                return work(False)
            except TooFar:
                return self.before_lane(lambda: work(True))

        return self.near(at_once, *refs, is_change=True)

    def in_turn(self, work: Callable[[], Answer]) -> Answer:
        """For assigning references, which is done one after the other."""
        references, client = self._queues.references, self.request.client
        return InThread(references, client, work, is_change=True)

    def in_lane(self, request: LaneRequest, answer: Callable[[Any], Response]) -> Answer:
        """For a change of a branch."""
        return InLane(self.service.start_in_lane, request, answer)

    def in_reference_lane(
        self, request: ReferenceRequest, answer: Callable[[Any], Response]
    ) -> Answer:
        """For creating and deleting references."""
        return InLane(self.service.references.start, request, answer)

    def ref(self, ref: RequestedRef) -> RequestedRef:
        """A ref spec of the path, after all checks; `-` is the default branch."""
        if ref.name == "":
            raise BadRequest(
                "Either name or commit ID with optional relative commit spec or both must be"
                " supplied"
            )
        if ref.name == "-":
            return msgspec.structs.replace(ref, name=self.service.default_branch)
        return ref

    def target(self, ref: RequestedRef) -> RequestedRef:
        """The target of a change. If the path has no hash, the one in If-Match is taken."""
        ref = self.ref(ref)
        return ref if ref.names_a_commit else RequestedRef.of(ref.name, self.matched())

    def matched(self) -> str | None:
        """The hash in If-Match, if there is one."""
        tag = self.request.header(b"if-match")
        if tag is None or tag == "*":
            return None
        try:
            return check_hash(tag.removeprefix("W/").strip('"'))
        except BadRequest as problem:
            raise BadRequest(f"If-Match: {problem}") from None


def _have_steps(refs: Iterable[RequestedRef]) -> bool:
    for ref in refs:  # noqa: SIM110 - A generator would cost each request more than this loop.
        if ref.has_steps:
            return True
    return False


def ok(body: Any) -> Response:
    return Response(200, _ENCODER.encode(body), _JSON)


def ok_list(
    field: str,
    batches: Iterable[Sequence[Any]],
    frame: Callable[[], msgspec.Struct],
    show: Callable[[Any], object] | None = None,
    at: Reference | None = None,
) -> Pieces:
    """An answer whose first field is a list that may be long; see `json_pieces.listed`."""
    headers = _JSON if at is None else (*_JSON, _tag(at))
    return Pieces(listed(field, encoded(batches, show), frame), headers)


def ok_encoded_page(field: str, found: Items[bytes], page: PageOf) -> Pieces:
    """A page of items that are encoded already."""
    return Pieces(listed(field, joined(found), _frame(found, page)), _JSON)


def ok_page(
    field: str,
    found: Items[Any],
    page: PageOf,
    show: Callable[[Any], object] | None = None,
) -> Pieces:
    """A page of a list that may be long."""
    return ok_list(field, found, _frame(found, page), show)


def ok_log(
    found: Items[LogEntry],
    page: PageOf,
    view: Callable[[LogEntry, tuple[()] | None], msgspec.Struct],
    show: Callable[[Any], object],
    operations: Callable[[LogEntry], Iterable[Sequence[Put | Delete]]],
) -> Pieces:
    """A page of a history with the operations of each commit, which may be very many."""

    def entries() -> Iterator[Iterable[bytes]]:
        for batch in found:
            if not batch:
                yield (b"",)
            for entry in batch:
                yield ending_with_list(partial(view, entry), encoded(operations(entry), show))

    return Pieces(listed("logEntries", entries(), _frame(found, page)), _JSON)


def ok_in_steps(steps: Iterable[msgspec.Struct | None]) -> Pieces:
    """An answer that takes many steps to compute; all steps but the last give None."""
    return Pieces((b"" if it is None else _ENCODER.encode(it) for it in steps), _JSON)


def ok_at(body: Any, reference: Reference | ReferenceView | None) -> Response:
    """An answer about a reference, if any: its hash is the entity tag."""
    headers = _JSON if reference is None else (*_JSON, _tag(reference))
    return Response(200, _ENCODER.encode(body), headers)


def _frame(found: Items[Any], page: PageOf) -> Callable[[], msgspec.Struct]:
    """The token is known only after the last item."""
    return lambda: page((), found.token, found.token is not None)


def _tag(reference: Reference | ReferenceView) -> Header:
    return (b"etag", f'"{reference.hash}"'.encode())
