"""One call of an endpoint: what the handlers see of a request, and how they answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from morag.api.http import Request, Response
from morag.api.later import Answer, InLane, InThread
from morag.api.query import Query
from morag.errors import BadRequest
from morag.model.names import check_hash
from morag.service.places import Asked, asked_in_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from morag.api.later import Queues, Render
    from morag.model.meta import CommitMeta
    from morag.model.operations import Operation
    from morag.model.references import Reference
    from morag.service.service import Service
    from morag.versions.commit import CommitRequest, CommitResult
    from morag.versions.tickets import Request as LaneRequest

Handler: TypeAlias = Callable[["Call"], Answer]

_JSON: Final = ((b"content-type", b"application/json;charset=UTF-8"),)
_ENCODER: Final = msgspec.json.Encoder()
NO_CONTENT: Final = Response(204)


class Call:
    """A request that found its handler."""

    __slots__ = ("_query", "_queues", "parameters", "render", "request", "service")

    def __init__(
        self,
        request: Request,
        parameters: Mapping[str, str],
        service: Service,
        render: Render,
        queues: Queues,
    ) -> None:
        self.request = request
        self.parameters = parameters
        self.service = service
        self.render = render
        self._queues = queues
        self._query: Query | None = None

    @property
    def query(self) -> Query:
        if self._query is None:
            self._query = Query(self.request.query)
        return self._query

    def in_thread(self, work: Callable[[], Answer]) -> Answer:
        """For what may take long, such as a listing."""
        return InThread(self._queues.listings, work, self.render)

    def near(self, work: Callable[[], Answer], *places: Asked) -> Answer:
        """For what is found at once, unless one of the places is steps away, or the store is."""
        if any(place.has_steps for place in places):
            return self.in_thread(work)
        reads = self._queues.reads
        return work() if reads is None else InThread(reads, work, self.render)

    def in_turn(self, work: Callable[[], Answer]) -> Answer:
        """For what creates, moves or drops references: the store takes these one by one."""
        return InThread(self._queues.references, work, self.render)

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
        return self.near(lambda: queued(changes.commit_request(target, operations, meta)), target)

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


def ok_at(body: Any, reference: Reference) -> Response:
    """An answer about a reference: its hash is the entity tag."""
    tag = (b"etag", f'"{reference.hash}"'.encode())
    return Response(200, _ENCODER.encode(body), (*_JSON, tag))
