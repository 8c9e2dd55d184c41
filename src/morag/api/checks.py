"""Checks of parameters before the work begins, with Nessie's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.errors import BadRequest
from morag.model.names import HASH_RULE, NAME_RULE, check_hash, check_reference_name
from morag.model.refspecs import HASH_AND_STEPS_RULE, REF_SPEC_RULE
from morag.service.ref_resolution import RequestedRef, parse_requested_ref

if TYPE_CHECKING:
    from collections.abc import Callable, Sized
    from types import TracebackType

    from morag.model.names import ReferenceKind
    from morag.rest.requests import CommitBody, KeysBody

KINDS: Final[dict[str, ReferenceKind]] = {
    "BRANCH": "BRANCH",
    "branch": "BRANCH",
    "TAG": "TAG",
    "tag": "TAG",
}
"""The kinds of references, in the spellings that clients use."""


class Checks:
    """Checks the parameters of one call and reports all their problems together, at the end, as
    `call.parameter: problem`. A parameter may be absent, unless the call needs it.
    """

    __slots__ = ("_call", "_problems")

    def __init__(self, call: str) -> None:
        self._call = call
        self._problems: list[str] = []

    def __enter__(self) -> Checks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._problems and error is None:
            raise BadRequest(", ".join(self._problems))

    def is_there(self, parameter: str, value: object) -> None:
        if value is None:
            self._report(parameter, "must not be null")

    def not_empty(self, parameter: str, values: Sized | None) -> None:
        if not values:
            self._report(parameter, "size must be between 1 and 2147483647")

    def no_empty_text(self, parameter: str, text: str | None) -> None:
        if text is not None:
            self.not_empty(parameter, text)

    def name(self, parameter: str, text: str | None) -> None:
        self._follows(check_reference_name, NAME_RULE, parameter, text)

    def source_name(self, parameter: str, text: str) -> None:
        """Check a name. A blank one is reported twice, as in Nessie."""
        self.name(parameter, text)
        if not text.strip():
            self._report(parameter, "must not be blank")

    def ref_spec(self, parameter: str, text: str, rule: str = REF_SPEC_RULE) -> RequestedRef:
        """Check and parse a ref spec of the path."""
        try:
            return parse_requested_ref(text)
        except BadRequest:
            self._report(parameter, rule)
            return RequestedRef()  # Never used: the checks end with an error.

    def hash(self, parameter: str, text: str | None) -> None:
        self._follows(check_hash, HASH_RULE, parameter, text)

    def hash_and_steps(self, parameter: str, name: str | None, text: str | None) -> RequestedRef:
        """Check and parse a commit of the query. An empty text is valid and means the head."""
        try:
            return RequestedRef.checked(name, text)
        except BadRequest:
            self._report(parameter, HASH_AND_STEPS_RULE)
            return RequestedRef()  # Never used: the checks end with an error.

    def kind(self, parameter: str, text: str | None) -> None:
        if text is not None and text not in KINDS:
            self._report(parameter, "Reference type name must be either 'branch' or 'tag'")

    def operations(self, body: CommitBody | None) -> None:
        """Check that a commit has a body with operations."""
        self.is_there("operations", body)
        if body is not None:
            self.not_empty("operations.operations", body.operations)

    def requested_keys(self, body: KeysBody | None) -> None:
        """Check that a request for contents has a body with keys."""
        self.is_there("request", body)
        if body is not None:
            self.not_empty("request.requestedKeys", body.requested_keys)

    def _follows(
        self, check: Callable[[str], object], rule: str, parameter: str, text: str | None
    ) -> None:
        if text is None:
            return
        try:
            check(text)
        except BadRequest:
            self._report(parameter, rule)

    def _report(self, parameter: str, problem: str) -> None:
        self._problems.append(f"{self._call}.{parameter}: {problem}")
