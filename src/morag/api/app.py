"""The API as one function: it takes a request, returns an answer, and never raises."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Final

from morag.api import errors, extras, v1, v2, web_pages
from morag.api.call import NORMAL, Call, Limits, Route
from morag.api.http import Request, Response
from morag.api.later import Queues
from morag.api.media_types import accepts_json, check_media_type
from morag.api.operator_log import OperatorLog
from morag.api.routing import CachedRouter, Router, elements_of, without_matrix
from morag.api.url_parsing import NoSuchPath, UrlInvalid, check_path
from morag.errors import MoragError
from morag.service.service import Service
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.api.endpoints import Endpoint
    from morag.api.later import Answer
    from morag.api.operator_log import Damage
    from morag.api.routing import Match
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

    Cheap reads are answered at once, unless the store is on another machine. Work that may take
    long, or waits for other requests, comes back as a `Later`, so that the server decides where it
    runs. `threads` is the number of threads that the server has for it.
    """

    def __init__(
        self,
        repository: Repository,
        *,
        stack_traces: bool = False,
        hide: Callable[[str], str] = str,
        threads: int = 16,
        store_is_remote: bool = False,
        limits: Limits = NORMAL,
        monotonic: Callable[[], float] = _WORLD.monotonic,
    ) -> None:
        self._service = Service(repository)
        self._stack_traces = stack_traces
        self._hide = hide  # Masks secrets in stack traces.
        self._operator_log = OperatorLog(lambda text: _log.error("%s", hide(text)), monotonic)
        self._queues = Queues(threads, store_is_remote=store_is_remote, monotonic=monotonic)
        self._limits = limits
        router: Router[Endpoint] = Router()
        self._methods: dict[tuple[str, ...], set[str]] = {}
        for endpoint in (*ENDPOINTS, *web_pages.pages(ENDPOINTS)):
            router.add(endpoint.method, endpoint.path, endpoint)
            self._methods.setdefault(_resource(endpoint.path), {*_ALWAYS}).add(endpoint.method)
        self._router = CachedRouter(router)

    def answer(self, request: Request) -> Answer:
        """The response, or the `Later` that gives it. Every exception becomes a response."""
        try:
            return self._handled(request)
        except Exception as error:  # noqa: BLE001 - The client must get an answer.
            return self.failure(request, error)

    @property
    def damage(self) -> Damage | None:
        """The damage that was found in the store since the start, if any was."""
        return self._operator_log.damage

    def report(self, error: Exception, work: str) -> None:
        """Log a store error that occurred outside of requests, at the same limited rate."""
        self._operator_log.note(error, work)

    def failure(self, request: Request, error: Exception) -> Response:
        """The response that reports an error to its client. Bugs are logged, with their trace.

        This is the only place where an exception becomes a response.
        """
        try:
            return self._failure(request, error)
        finally:
            _forget_frames(error)

    def _failure(self, request: Request, error: Exception) -> Response:
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
        self._operator_log.note(error, f"{request.method} {request.path}")
        details = errors.wants_details(request.header(b"nessie-client-spec"))
        shown = trace if self._stack_traces else None
        body = errors.error_body(error, details=details, stack_trace=shown)
        return Response(body.status, errors.encoded(body), errors.headers_for(error))

    def _handled(self, request: Request) -> Answer:
        route: Route | None = request.memo.route
        if route is None:
            found = self._routed(request)
            if isinstance(found, Response):
                return found
            route = request.memo.route = found
        call = Call(request, route.parameters, self._service, self._queues, self._limits)
        return route.handler(call)

    def _routed(self, request: Request) -> Route | Response:
        """The handler of a request; or the response, if none is called."""
        if request.method == "OPTIONS":
            return self._options(request.path)
        match = self._router.find(request.path)
        if match is None:
            return _NOT_FOUND
        method = "GET" if request.method == "HEAD" else request.method
        endpoint = match.handlers.get(method)
        if endpoint is None:
            return _not_allowed(match)
        if not (endpoint.is_page or accepts_json(request)):
            return _NOT_ACCEPTABLE
        if not endpoint.any_media:
            check_media_type(request)
        return Route(endpoint.handler, match.parameters)

    def _options(self, path: str) -> Response:
        """Allow all methods of the resource for every path below it, even if the path does not
        exist, as Nessie does."""
        check_path(path)
        known = self._methods.get(_resource(without_matrix(path)))
        if known is None:
            return _NOT_FOUND
        allowed = [method for method in _METHODS if method in known]
        return Response(200, b"", ((b"allow", ", ".join(allowed).encode()),))


def _forget_frames(error: BaseException) -> None:
    """Release the objects in the frames that an error passed through, such as the request's body.

    A frame that refers to the error is a cycle with it. Python's collector would break it much
    later, after many more requests. Errors that caused each other may be a cycle, too.
    """
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and each.__traceback__ is not None:
            each.__traceback__ = None
            left += (each.__cause__, each.__context__)


def _not_allowed(match: Match[Endpoint]) -> Response:
    return Response(405, b"", ((b"allow", ", ".join(sorted(match.handlers)).encode()),))


def _resource(path: str) -> tuple[str, ...]:
    """The first elements of a path, which name its resource: `/api/v2/trees`."""
    return tuple(elements_of(path)[:3])
