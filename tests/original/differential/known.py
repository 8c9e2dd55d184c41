"""The differences that are meant: faults of the original that Morag does not copy.

A difference counts as known only if Morag answers exactly as its row says. Every one is counted, so
that a row cannot hide more than it names.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.original.differential.vocabulary import BAD_FILTERS

if TYPE_CHECKING:
    from tests.original.differential.canonical import Answer
    from tests.original.differential.requests import Request

TYPE_CHANGE: Final = "type change"
MERGED_RENAME: Final = "merged rename"
EMPTY_MERGE: Final = "merge of nothing"
LOST_KEY: Final = "transplant that loses a key"
EQUAL_BASES: Final = "equal merge bases"
UNSTORED: Final = "expected content that is not stored"
BAD_INPUT: Final = "500 to bad input"
BAD_FILTER: Final = "bad filter of nothing"
NO_ALLOW: Final = "405 without Allow"
JAVA_TEXT: Final = "text of a Java library"
SPANNED: Final = "reference over several elements"
NAMESPACES: Final = "several kinds of namespace conflicts"
TOKEN_BOUNDS: Final = "token and bounds"
TRANSPLANTED: Final = "conflicts of a transplant"

REASONS: Final = {
    TYPE_CHANGE: (
        "Another type under an existing content id: the original answers 400, moves the branch and"
        " cannot read it any more. Morag answers 400 and changes nothing. Only Morag is asked."
    ),
    MERGED_RENAME: (
        "A merge or transplant that brings a rename: the original deletes and does not put. In"
        " Morag it stays a rename. Only Morag is asked, on a branch that is dropped afterwards."
    ),
    EMPTY_MERGE: (
        "A merge from before the first commit: the original deletes all that the target has. In"
        " Morag there is nothing to merge. Only Morag is asked."
    ),
    LOST_KEY: (
        "A transplant in which one commit creates what the target has already, and a later one"
        " deletes it: the original answers 500. Not asked, once a dry run of it has failed."
    ),
    EQUAL_BASES: (
        "Criss-cross merges leave two merge bases of equal rank: which one the original takes is"
        " up to the order of a heap. Not asked."
    ),
    UNSTORED: (
        "A merge that expects content of a key which the target does not have: the original looks"
        " for that content and answers 500. In Morag it is a conflict."
    ),
    BAD_INPUT: (
        "The original answers 500 to bad input. Morag answers 400 BAD_REQUEST, and both have the"
        " references that they had."
    ),
    BAD_FILTER: (
        "A filter that cannot say yes or no: the original notices when it asks the filter, so never"
        " if nothing is there. Morag notices before."
    ),
    NO_ALLOW: "HTTP demands the header Allow in a 405. The original sends none, Morag does.",
    SPANNED: (
        "A write to a path such as trees/a/diff/b@: the original takes all of it for the name of a"
        " reference, Morag for a diff that cannot be written to. Both refuse."
    ),
    NAMESPACES: (
        "A commit that breaks rules of namespaces in several ways: both refuse, but do not tell of"
        " the same ones."
    ),
    TOKEN_BOUNDS: (
        "A page token that lies behind the last key that is asked for: the original refuses it if"
        " it finds a key between, Morag has nothing to show."
    ),
    TRANSPLANTED: (
        "A transplant of several commits, or a dry run of one: the original compares with the head"
        " instead of with what the commits before have made, and forgets commits of which nothing"
        " is left (docs/decisions/0004). Both refuse, or neither writes, with other conflicts."
    ),
    JAVA_TEXT: "An error's text has a Java library's words. Status and code are compared.",
}


class Known:
    def __init__(self) -> None:
        self.counts = Counter(dict.fromkeys(REASONS, 0))

    def count(self, what: str) -> None:
        assert what in REASONS
        self.counts[what] += 1


def nothing_filtered(request: Request, answer: Answer) -> bool:
    """Whether the original had no chance to notice that a filter is bad."""
    if answer.status != 200 or not {*request.query} & {("filter", bad) for bad in BAD_FILTERS}:
        return False
    body = answer.json
    return isinstance(body, dict) and not any(isinstance(v, list) and v for v in body.values())


def fault(original: Answer, morag: Answer) -> str | None:
    """What is wrong with a 500 of the original, if Morag answers as it should."""
    body, ours = original.json, morag.json
    if original.status != 500 or not isinstance(body, dict) or not isinstance(ours, dict):
        return None
    said = str(body.get("message"))
    if "ObjNotFoundException" in said:
        conflict = morag.status == 409 or ours.get("wasSuccessful") is False
        return UNSTORED if conflict else None
    # The same key twice is not the only thing that is wrong with some requests.
    lost = "Duplicate key" in said and ours.get("errorCode") == "REFERENCE_NOT_FOUND"
    return BAD_INPUT if lost or refused(morag) else None


def decided(request: Request, original: Answer, morag: Answer) -> str | None:
    """What was decided to be left as it is. In none of these does either server write."""
    both = original.status, morag.status
    if request.writes and both in ((400, 405), (404, 405)):
        return SPANNED
    said = str(original.json)
    if both == (409, 409) and "namespace" in said and "namespace" in str(morag.json):
        return NAMESPACES
    if both == (400, 200) and "must be greater than" in said and not request.writes:
        return TOKEN_BOUNDS
    dry = '"isDryRun": true' in (request.text or "")
    if request.path.endswith("/transplant") and (both == (409, 409) or (dry and 400 not in both)):
        return TRANSPLANTED
    return None


def refused(answer: Answer) -> bool:
    body = answer.json
    return (
        answer.status == 400
        and isinstance(body, dict)
        and body.get("errorCode") == "BAD_REQUEST"
        and bool(body.get("message"))
    )
