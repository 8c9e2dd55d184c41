"""The differences that are meant: faults of the original that Morag does not copy.

A difference counts as known only if Morag answers exactly as its row says. Every one is counted, so
that a row cannot hide more than it names.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.original.differential.canonical import Answer

TYPE_CHANGE: Final = "type change"
MERGED_RENAME: Final = "merged rename"
BAD_INPUT: Final = "500 to bad input"
JAVA_TEXT: Final = "text of a Java library"

REASONS: Final = {
    TYPE_CHANGE: (
        "Another type under an existing content id: the original answers 400, moves the branch and"
        " cannot read it any more. Morag answers 400 and changes nothing. Only Morag is asked."
    ),
    MERGED_RENAME: (
        "A merge or transplant that brings a rename: the original deletes and does not put. In"
        " Morag it stays a rename. Only Morag is asked, on a branch that is dropped afterwards."
    ),
    BAD_INPUT: (
        "The original answers 500 to bad input. Morag answers 400 BAD_REQUEST, and both have the"
        " references that they had."
    ),
    JAVA_TEXT: "An error's text has a Java library's words. Status and code are compared.",
}


class Known:
    def __init__(self) -> None:
        self.counts = Counter(dict.fromkeys(REASONS, 0))

    def count(self, what: str) -> None:
        assert what in REASONS
        self.counts[what] += 1


def refused(answer: Answer) -> bool:
    body = answer.json
    return (
        answer.status == 400
        and isinstance(body, dict)
        and body.get("errorCode") == "BAD_REQUEST"
        and bool(body.get("message"))
    )
