"""The API as one function: a request in, an answer out, and never an exception."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Final

from morag.api import errors, extras, pages, v1, v2
from morag.api.call import NORMAL, Call, Handler, Limits
from morag.api.http import Request, Response
from morag.api.later import Queues
from morag.api.media import accepts_json
from morag.api.paths import NoSuchPath, UrlInvalid, check_path
from morag.api.remembering import Remembering
from morag.api.routing import Router, elements_of, without_matrix
from morag.api.troubles import Troubles
from morag.errors import MoragError
from morag.service.service import Service
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.api.endpoints import Endpoint
    from morag.api.later import Answer
    from morag.api.routing import Match
    from morag.api.troubles import Damage
    from morag.versions.repository import Repository

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *v2.ENDPOINTS,
    *v1.ENDPOINTS,
    *extras.ENDPOINTS,
)

_NOT_FOUND: Final = Response(404)
_NOT_ACCEPTABLE: Final = Response(406)
_BAD_URL: Final = Response(400)
_ALWAYS: Final = ("HEAD", "GET", "OPTIONS")
_METHODS: Final = ("HEAD", "DELETE", "POST", "GET", "OPTIONS", "PUT")  # The order that clients see.

_WORLD: Final = World()

_log = logging.getLogger(__name__)


class Api:
    """Answers requests for one repository.

    Cheap reads are answered at once, unless the store is on another machine. Everything that may
    take long, or waits for others, comes back as a `Later`, so that whoever carries requests
    decides where it runs. `threads` says how many things may wait there at the same time.
    """

    def __init__(
        self,
        repository: Repository,
        *,
        stack_traces: bool = False,
        hide: Callable[[str], str] = str,
        threads: int = 16,
        store_is_far: bool = False,
        limits: Limits = NORMAL,
        monotonic: Callable[[], float] = _WORLD.monotonic,
    ) -> None:
        self._service = Service(repository)
        self._stack_traces = stack_traces
        self._hide = hide  # Takes secrets out of what a bug says.
        self._troubles = Troubles(lambda text: _log.error("%s", hide(text)), monotonic)
        self._queues = Queues(threads, store_is_far=store_is_far, monotonic=monotonic)
        self._limits = limits
        router: Router[Handler] = Router()
        self._methods: dict[tuple[str, ...], set[str]] = {}
        for endpoint in ENDPOINTS:
            router.add(endpoint.method, endpoint.path, endpoint.handler)
            self._methods.setdefault(_noun(endpoint.path), {*_ALWAYS}).add(endpoint.method)
        for path, handler in pages.HANDLERS.items():
            router.add("GET", path, handler)
            self._methods[_noun(path)] = {*_ALWAYS}
        self._find = Remembering(router).find

    def answer(self, request: Request) -> Answer:
        return self._rendered(request, lambda: self._handled(request))

    @property
    def damage(self) -> Damage | None:
        """The damage that was found in the store since the start, if any was."""
        return self._troubles.damage

    def report(self, error: Exception, work: str) -> None:
        """Log an error of the store that no request has met, as often as one that requests meet."""
        self._troubles.note(error, work)

    def failure(self, request: Request, error: Exception) -> Response:
        """The response that reports an error to its client."""
        if isinstance(error, NoSuchPath):
            return _NOT_FOUND
        if isinstance(error, UrlInvalid):
            return _BAD_URL
        known = isinstance(error, MoragError)
        trace = None
        if self._stack_traces or not known:
            trace = self._hide("".join(traceback.format_exception(error)))
        if not known:
            _log.error("%s %s failed: %s", request.method, request.path, trace)
        self._troubles.note(error, f"{request.method} {request.path}")
        details = errors.wants_details(request.header(b"nessie-client-spec"))
        shown = trace if self._stack_traces else None
        body = errors.error_body(error, details=details, stack_trace=shown)
        return Response(body.status, errors.encoded(body), errors.headers_for(error))

    def _handled(self, request: Request) -> Answer:
        if request.method == "OPTIONS":
            return self._options(request.path)
        match = self._find(request.path)
        if match is None:
            return _NOT_FOUND
        method = "GET" if request.method == "HEAD" else request.method
        handler = match.handlers.get(method)
        if handler is None:
            return _not_allowed(match)
        if match.template not in pages.HANDLERS and not accepts_json(request):
            return _NOT_ACCEPTABLE

        def render(work: Callable[[], Answer]) -> Answer:
            return self._rendered(request, work)

        parameters, queues = match.parameters, self._queues
        return handler(Call(request, parameters, self._service, render, queues, self._limits))

    def _options(self, path: str) -> Response:
        """Every path is said to know all methods of its noun, as clients are used to, whether it
        leads anywhere or not."""
        check_path(path)
        known = self._methods.get(_noun(without_matrix(path)))
        if known is None:
            return _NOT_FOUND
        allowed = [method for method in _METHODS if method in known]
        return Response(200, b"", ((b"allow", ", ".join(allowed).encode()),))

    def _rendered(self, request: Request, work: Callable[[], Answer]) -> Answer:
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer.
            response = self.failure(request, error)
            _forget_frames(error)
            return response


def _forget_frames(error: BaseException) -> None:
    """Release what the frames hold that an error passed through, such as the request's body.

    A frame that refers to the error is a cycle with it. Python's collector would break it much
    later, after many more requests. Errors that caused each other may be a cycle, too.
    """
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and each.__traceback__ is not None:
            each.__traceback__ = None
            left += (each.__cause__, each.__context__)


def _not_allowed(match: Match[Handler]) -> Response:
    return Response(405, b"", ((b"allow", ", ".join(sorted(match.handlers)).encode()),))


def _noun(path: str) -> tuple[str, ...]:
    """The beginning of a path that names what it is about: `/api/v2/trees`."""
    return tuple(elements_of(path)[:3])
