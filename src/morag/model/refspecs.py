"""Ref specs: the texts by which clients name commits, such as `main@cafebabe~2`."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from msgspec import Struct

from morag.errors import BadRequest
from morag.model.names import HASH_RULE, NAME_RULE, check_hash, check_reference_name
from morag.model.times import MAX_NANOS, instant_text, parse_instant

_MILLI_NANOS: Final = 1_000_000
_MAX_STEPS: Final = 2**31 - 2
_MAX_MILLIS: Final = 2**63 - 1
_LONGEST_STEPS: Final = 16 * 1024  # Thousands of steps. Only a hostile client sends more.

HASH_AND_STEPS_RULE: Final = (
    "Hash with optional relative part must consist of either a valid commit hash "
    f"(which in turn {HASH_RULE.removeprefix('Hash ')}), or a valid relative part "
    "(which must be either '~' + a number representing the n-th predecessor of a commit, "
    "'^' + a number representing the n-th parent within a commit, or "
    "'*' + a number representing the created timestamp of a commit, "
    "in milliseconds since epoch or in ISO-8601 format), or both."
)
REF_SPEC_RULE: Final = (
    f"{NAME_RULE}, optionally followed by @ and a hash with optional relative part. "
    f"{HASH_AND_STEPS_RULE}"
)

# No name holds one of @~^*, so the three parts cannot be confused.
_REF_SPEC: Final = re.compile(r"([^@~^*]*)(?:@([^@~^*]*))?([~^*].*)?", re.DOTALL)
_HASH_AND_STEPS: Final = re.compile(r"([^~^*]*)([~^*].*)?", re.DOTALL)
_STEP: Final = re.compile(
    r"([~^*])([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?Z|[0-9]+)"
)
_STEPS: Final = re.compile(f"(?:{_STEP.pattern})*")
_WHOLE_SECOND: Final = re.compile(r"\*[0-9]{4}-[0-9-]+T[0-9:]+Z")


class RelativeKind(Enum):
    PREDECESSOR = "~"
    PARENT = "^"
    TIMESTAMP = "*"


_JAVA_NAMES: Final = {
    RelativeKind.PREDECESSOR: "N_TH_PREDECESSOR",
    RelativeKind.PARENT: "N_TH_PARENT",
}


class Relative(Struct, frozen=True):
    """One step away from a commit.

    `value` counts from 1 for PREDECESSOR and PARENT. For TIMESTAMP it is a moment in nanoseconds
    since the epoch, and the step leads to the newest commit that is not younger.
    """

    kind: RelativeKind
    value: int

    def __str__(self) -> str:
        if self.kind is not RelativeKind.TIMESTAMP:
            return f"{self.kind.value}{self.value}"
        if self.value > MAX_NANOS:  # Was given in milliseconds; the year is too large for ISO.
            return f"*{self.value // _MILLI_NANOS}"
        return f"*{instant_text(self.value)}"


class RefSpec(Struct, frozen=True):
    """A reference or a commit, and the steps to take from there, in order.

    Without a hash the steps start at the reference's head; without a name the commit is detached.
    A spec of steps alone is well formed, so a caller that needs a name or a hash must check for it.
    """

    name: str | None = None
    hash: str | None = None
    relatives: tuple[Relative, ...] = ()

    def __str__(self) -> str:
        at = "" if self.hash is None else f"@{self.hash}"
        return f"{self.name or ''}{at}{''.join(map(str, self.relatives))}"


def parse_ref_spec(text: str) -> RefSpec:
    """Read `name`, `name@`, `name@hash` or `@hash`, each with any number of steps."""
    name, hash, steps = split_ref_spec(text)
    if not (name or hash or steps):
        raise BadRequest(
            "Either name or commit ID with optional relative commit spec or both must be supplied"
        )
    return RefSpec(name or None, hash or None, parse_steps(steps))


def split_ref_spec(text: str) -> tuple[str, str, str]:
    """The name, the hash and the steps of a ref spec, if its grammar is right.

    A part that is left out is empty. Numbers and times are not checked.
    """
    found = _REF_SPEC.fullmatch(text)
    if found is None:
        raise BadRequest(REF_SPEC_RULE)
    name, hash, steps = found.groups("")
    try:
        if name:
            check_reference_name(name)
        return name, *_checked(hash, steps)
    except BadRequest:
        raise BadRequest(REF_SPEC_RULE) from None


def split_hash_and_steps(text: str) -> tuple[str, str]:
    """The hash and the steps. Like `split_ref_spec`, without a name."""
    found = _HASH_AND_STEPS.fullmatch(text)
    if found is None or not text:
        raise BadRequest(HASH_AND_STEPS_RULE)
    hash, steps = found.groups("")
    try:
        return _checked(hash, steps)
    except BadRequest:
        raise BadRequest(HASH_AND_STEPS_RULE) from None


def check_hash_and_steps(text: str) -> None:
    """Refuse a hash with steps that Nessie's API does not accept."""
    split_hash_and_steps(text)
    check_times(text, HASH_AND_STEPS_RULE)


def parse_steps(steps: str) -> tuple[Relative, ...]:
    """Read steps, one after the other."""
    if not steps:
        return ()
    return tuple(_step(RelativeKind(found[1]), found[2]) for found in _STEP.finditer(steps))


def last_step(steps: str) -> str:
    """The last step; empty if there is none."""
    found = [part[0] for part in _STEP.finditer(steps)] if steps else []
    return found[-1] if found else ""


def _checked(hash: str, steps: str) -> tuple[str, str]:
    if steps and (len(steps) > _LONGEST_STEPS or not _STEPS.fullmatch(steps)):
        raise BadRequest(HASH_AND_STEPS_RULE)
    return check_hash(hash) if hash else "", steps


def check_times(text: str, rule: str) -> None:
    """Refuse a time without a fraction of a second, as Nessie's API does; the kernel allows it."""
    if "*" in text and _WHOLE_SECOND.search(text):
        raise BadRequest(rule)


def _step(kind: RelativeKind, text: str) -> Relative:
    if kind is RelativeKind.TIMESTAMP:
        if not text.isdigit():
            try:
                return Relative(kind, parse_instant(text))
            except BadRequest:
                raise BadRequest(  # Nessie's words, including the wrong grammar.
                    f"'*' relative commit spec argument '{text}' must be represent an ISO-8601 "
                    "timestamp ('Z' only) or a numeric value representing the milliseconds since "
                    "epoch"
                ) from None
        millis = _number(text, _MAX_MILLIS)
        if millis is None:
            raise BadRequest(
                f"'{text}' are too many milliseconds: "
                "use an ISO time such as 2023-05-27T11:10:47.000Z"
            )
        return Relative(kind, millis * _MILLI_NANOS)
    steps = _number(text, _MAX_STEPS)
    if not steps:
        raise BadRequest(f"Illegal value {text} for spec type {_JAVA_NAMES[kind]} ({kind.value})")
    return Relative(kind, steps)


def _number(text: str, most: int) -> int | None:
    """The number; None if it is above `most` or not a number. Python refuses very long ones."""
    digits = text.lstrip("0")
    if not (text.isdigit() and len(digits) <= 19):
        return None
    number = int(digits or "0")
    return number if number <= most else None
