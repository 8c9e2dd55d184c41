"""One call of an endpoint: what the handlers see of a request, and how they answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec

from morag.api.http import Request, Response
from morag.api.later import Answer, InLane, InPieces, InThread, Pieces
from morag.api.pieces import encoded, ending_with_list, listed
from morag.api.query import Query
from morag.errors import BadRequest
from morag.model.names import check_hash
from morag.service.places import Asked, asked_in_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from morag.api.http import Header
    from morag.api.json_reader import Body
    from morag.api.later import Queues, Render
    from morag.model.content import Content
    from morag.model.listed import LogEntry
    from morag.model.meta import CommitMeta
    from morag.model.operations import Delete, Operation, Put
    from morag.model.references import Reference
    from morag.service.paging import Items
    from morag.service.service import Service
    from morag.versions.commit import CommitRequest, CommitResult
    from morag.versions.contents import Undecoded
    from morag.versions.tickets import Request as LaneRequest

T = TypeVar("T")

Handler: TypeAlias = Callable[["Call"], Answer]
PageOf: TypeAlias = Callable[[tuple[()], str | None, bool], msgspec.Struct]
"""Makes a page of an empty list, the token to go on with, and whether there is more."""

_JSON: Final = ((b"content-type", b"application/json;charset=UTF-8"),)
_ENCODER: Final = msgspec.json.Encoder()
NO_CONTENT: Final = Response(204)


class Limits(msgspec.Struct, frozen=True):
    """How much one request may ask for; keys and hashes count as operations."""

    max_operations: int = 100_000


NORMAL: Final = Limits()


class Call:
    """A request that found its handler."""

    __slots__ = ("_limits", "_query", "_queues", "parameters", "render", "request", "service")

    def __init__(
        self,
        request: Request,
        parameters: Mapping[str, str],
        service: Service,
        render: Render,
        queues: Queues,
        limits: Limits,
    ) -> None:
        self.request = request
        self.parameters = parameters
        self.service = service
        self.render = render
        self._queues = queues
        self._limits = limits
        self._query: Query | None = None

    @property
    def query(self) -> Query:
        if self._query is None:
            self._query = Query(self.request.query)
        return self._query

    def body(self, kind: Body[T]) -> T | None:
        """The request's body, unless there is none."""
        return kind.read(self.request.body, self._limits.max_operations)

    def in_thread(self, work: Callable[[], Answer]) -> Answer:
        """For a read that may take long."""
        return InThread(self._queues.listings, self.request.client, work, self.render)

    def in_pieces(self, work: Callable[[], Pieces]) -> Answer:
        """For an answer that may be large."""
        queues = self._queues
        return InPieces(queues.listings, self.request.client, work, self.render, queues.monotonic)

    def showing(self, found: Undecoded, show: Callable[[Content], Response]) -> Answer:
        """For a content that was found: to show a large one may take long."""

        def work() -> Response:
            return show(found.content())

        return self.in_thread(work) if found.is_large else work()

    def before_lane(self, work: Callable[[], Answer]) -> Answer:
        """For a change of a branch that has to look at the store before it joins its lane."""
        listings, client = self._queues.listings, self.request.client
        return InThread(listings, client, work, self.render, is_change=True)

    def near(self, work: Callable[[], Answer], *places: Asked, is_change: bool = False) -> Answer:
        """For what is found at once, unless one of the places is steps away, or the store is."""
        queues = self._queues
        has_steps = any(place.has_steps for place in places)
        turns = queues.listings if has_steps else queues.reads
        if turns is None:
            return work()
        return InThread(turns, self.request.client, work, self.render, is_change=is_change)

    def in_turn(self, work: Callable[[], Answer]) -> Answer:
        """For what creates, moves or drops references: the store takes these one by one."""
        references, client = self._queues.references, self.request.client
        return InThread(references, client, work, self.render, is_change=True)

    def in_lane(self, request: LaneRequest, answer: Callable[[Any], Response]) -> Answer:
        """For what changes a branch."""
        return InLane(self.service.start, request, answer, self.render)

    def committing(
        self,
        target: Asked,
        operations: Sequence[Operation],
        meta: CommitMeta,
        answer: Callable[[str, CommitResult], Response],
    ) -> Answer:
        """For a commit. `answer` is given the branch and what became of it."""
        changes = self.service.changes

        def queued(request: CommitRequest) -> Answer:
            return self.in_lane(request, lambda result: answer(request.branch, result))

        request = changes.ready_commit_request(target, operations, meta)
        if request is not None:
            return queued(request)
        return self.near(
            lambda: queued(changes.commit_request(target, operations, meta)), target, is_change=True
        )

    def place(self, parameter: str = "ref") -> Asked:
        """The ref spec in the path, which was checked. `-` stands for the default branch."""
        asked = asked_in_path(self.parameters[parameter])
        if asked.name == "-":
            return Asked(self.service.default_branch, asked.hash)
        return asked

    def target(self, parameter: str = "ref") -> Asked:
        """What a change is applied to. If-Match stands in for a hash that the path leaves out."""
        asked = self.place(parameter)
        return asked if asked.names_a_commit else Asked(asked.name, self.matched() or "")

    def matched(self) -> str | None:
        """The hash in If-Match, if there is one."""
        tag = self.request.header(b"if-match")
        if tag is None or tag == "*":
            return None
        try:
            return check_hash(tag.removeprefix("W/").strip('"'))
        except BadRequest as problem:
            raise BadRequest(f"If-Match: {problem}") from None


def ok(body: Any) -> Response:
    return Response(200, _ENCODER.encode(body), _JSON)


def ok_list(
    field: str,
    batches: Iterable[Sequence[Any]],
    frame: Callable[[], msgspec.Struct],
    show: Callable[[Any], object] | None = None,
    at: Reference | None = None,
) -> Pieces:
    """An answer whose first field is a list that may be long; see `pieces.listed`."""
    headers = _JSON if at is None else (*_JSON, _tag(at))
    return Pieces(listed(field, encoded(batches, show), frame), headers)


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
    """A page of a history with the operations of each commit, of which there may be very many."""

    def entries() -> Iterator[Iterable[bytes]]:
        for batch in found:
            if not batch:
                yield (b"",)
            for entry in batch:
                yield ending_with_list(partial(view, entry), encoded(operations(entry), show))

    return Pieces(listed("logEntries", entries(), _frame(found, page)), _JSON)


def ok_in_steps(steps: Iterable[T | None], show: Callable[[T], object]) -> Pieces:
    """An answer that takes many steps to find; all but the last one give None."""
    return Pieces((b"" if it is None else _ENCODER.encode(show(it)) for it in steps), _JSON)


def ok_at(body: Any, reference: Reference) -> Response:
    """An answer about a reference: its hash is the entity tag."""
    return Response(200, _ENCODER.encode(body), (*_JSON, _tag(reference)))


def _frame(found: Items[Any], page: PageOf) -> Callable[[], msgspec.Struct]:
    """The token is known only after the last item."""
    return lambda: page((), found.token, found.token is not None)


def _tag(reference: Reference) -> Header:
    return (b"etag", f'"{reference.hash}"'.encode())
