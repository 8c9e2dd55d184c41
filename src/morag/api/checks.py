"""Checks of parameters that come before the work, and the words they use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.errors import BadRequest
from morag.model.names import HASH_RULE, NAME_RULE, check_hash, check_reference_name
from morag.model.refspecs import HASH_OR_RELATIVE_RULE, REF_SPEC_RULE
from morag.service.places import check_hash_or_relative, check_ref_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Sized
    from types import TracebackType

    from morag.model.names import ReferenceKind

KINDS: Final[dict[str, ReferenceKind]] = {
    "BRANCH": "BRANCH",
    "branch": "BRANCH",
    "TAG": "TAG",
    "tag": "TAG",
}
"""What a reference can be, in the spellings that clients use."""


class Checks:
    """Checks the parameters of one call. What is wrong with them is told at the end, all at once,
    as `call.parameter: problem`. Parameters that are not there are right, unless they must be.
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
            self._tell(parameter, "must not be null")

    def not_empty(self, parameter: str, values: Sized | None) -> None:
        if not values:
            self._tell(parameter, "size must be between 1 and 2147483647")

    def no_empty_text(self, parameter: str, text: str | None) -> None:
        if text is not None:
            self.not_empty(parameter, text)

    def name(self, parameter: str, text: str | None) -> None:
        self._follows(check_reference_name, NAME_RULE, parameter, text)

    def source_name(self, parameter: str, text: str) -> None:
        """Both problems of a blank name are told."""
        self.name(parameter, text)
        if not text.strip():
            self._tell(parameter, "must not be blank")

    def ref_spec(self, parameter: str, text: str, rule: str = REF_SPEC_RULE) -> None:
        self._follows(check_ref_spec, rule, parameter, text)

    def hash(self, parameter: str, text: str | None) -> None:
        self._follows(check_hash, HASH_RULE, parameter, text)

    def hash_or_relative(self, parameter: str, text: str | None) -> None:
        """Nothing is no mistake here: it stands for the head."""
        self._follows(check_hash_or_relative, HASH_OR_RELATIVE_RULE, parameter, text or None)

    def kind(self, parameter: str, text: str | None) -> None:
        if text is not None and text not in KINDS:
            self._tell(parameter, "Reference type name must be either 'branch' or 'tag'")

    def _follows(
        self, check: Callable[[str], object], rule: str, parameter: str, text: str | None
    ) -> None:
        if text is None:
            return
        try:
            check(text)
        except BadRequest:
            self._tell(parameter, rule)

    def _tell(self, parameter: str, problem: str) -> None:
        self._problems.append(f"{self._call}.{parameter}: {problem}")
