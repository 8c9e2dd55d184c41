"""The differences that are meant.

A difference counts as known only if both answer exactly as its row says. Every one is counted, so
that a row cannot hide more than it names.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.original.differential.canonical import SEVERAL_CONFLICTS
from tests.original.differential.vocabulary import BAD_FILTERS, NUMBERS

if TYPE_CHECKING:
    from tests.original.differential.canonical import Answer
    from tests.original.differential.requests import Request

TYPE_CHANGE: Final = "type change"
MERGED_RENAME: Final = "merged rename"
EMPTY_MERGE: Final = "merge of nothing"
LOST_KEY: Final = "transplant that loses a key"
EQUAL_BASES: Final = "equal merge bases"
WRONG_BASE: Final = "wrong merge base"
UNSTORED: Final = "expected content that is not stored"
BAD_INPUT: Final = "500 to bad input"
BAD_FILTER: Final = "bad filter of nothing"
NO_ALLOW: Final = "405 without Allow"
JAVA_TEXT: Final = "text of a Java library"
SPANNED: Final = "reference over several elements"
NAMESPACES: Final = "several kinds of namespace conflicts"
TOKEN_BOUNDS: Final = "token and bounds"
TRANSPLANTED: Final = "conflicts of a transplant"
LAST_PAGE: Final = "last page down to a limit"
UNREAD: Final = "body that cannot be read"
MEDIA: Final = "media type of a configuration"

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
    WRONG_BASE: (
        "What was merged from a longer branch into a shorter one: the original does not see that"
        " it was, and merges it once more. Not asked, if it names a base that is none."
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
        "A filter that is neither true nor false: Nessie notices when it applies the filter, so"
        " after other mistakes, and never if nothing is there. Morag notices before."
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
        "A page token that no server made, beside bounds. One behind the last key: the original"
        " refuses it if it finds a key between, Morag has nothing to show. One before the prefix:"
        " the original stops at the first key without it, Morag begins at the prefix. An empty one"
        " of a diff: the original begins at the first key, Morag at min-key."
    ),
    LAST_PAGE: (
        "A log down to a limit, of which only the limit is left for the next page: the original"
        " says that there is none, and nobody ever sees that commit. Morag has it on a page."
    ),
    UNREAD: (
        "A list for an author, a null among the values of a property, or content of an unknown"
        " type: Nessie does not look at it before it needs it, and reports other mistakes first."
        " Morag does not even begin."
    ),
    MEDIA: (
        "A configuration that is not sent as JSON: both refuse, but the original's words depend on"
        " the type, and what is no media type at all is a 400 there, and a 415 in Morag."
    ),
    TRANSPLANTED: (
        "A transplant of several commits, or a dry run of one: the original compares with the head"
        " instead of with what the commits before have made, and forgets commits of which nothing"
        " is left (docs/decisions/0004). Both refuse, or neither writes, with other conflicts."
    ),
    JAVA_TEXT: "An error's text has a Java library's words. Status and code are compared.",
}

_UNREAD: Final = re.compile(
    r"The request body cannot be read: .* - at `\$.*"
    r"(?:\.commitMeta\.(?:author|signedOffBy|allProperties\[\.\.\.\]\[\d+\])|[cC]ontent(?:\.type)?)`"
)


class Known:
    def __init__(self) -> None:
        self.counts = Counter(dict.fromkeys(REASONS, 0))

    def count(self, what: str) -> None:
        assert what in REASONS
        self.counts[what] += 1


def nothing_filtered(request: Request, original: Answer, morag: Answer) -> bool:
    """Whether Nessie had no chance to notice that a filter is bad, which Morag reports."""
    filters = [value for name, value in request.query if name == "filter"]
    bad = any(value in BAD_FILTERS or value in NUMBERS for value in filters)
    unused = original.status in (400, 404) or (original.status == 200 and is_empty(original))
    return bad and unused and refused(morag) and _message(morag).startswith("Filter ")


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


def decided(request: Request, original: Answer, morag: Answer, where: list[str]) -> str | None:
    """What was decided to be left as it is. In none of these does either server write."""
    both, said = (original.status, morag.status), _message(original)
    if original.status >= 400 and morag.status == 400 and _UNREAD.fullmatch(_message(morag)):
        return UNREAD
    if both in ((400, 415), (415, 415)) and request.path.endswith("/config/repository"):
        return MEDIA
    if both == (200, 200) and _lacks_last_page(request, original, where):
        return LAST_PAGE
    if both == (200, 200) and _has_made_up_token(request, original):
        return TOKEN_BOUNDS
    if request.writes and both in ((400, 405), (404, 405)):
        taken = "/diff/" in request.path or "Reference name must start" in said
        return SPANNED if (taken or not original.body) and not morag.body else None
    if both == (409, 409):
        here, there = _broken_rules(said), _broken_rules(_message(morag))
        if here and there and (here <= there or there <= here):
            return NAMESPACES
    if both == (400, 200) and "must be greater than" in said and _is_paged(request):
        return TOKEN_BOUNDS if is_empty(morag) else None
    if request.path.endswith("/transplant") and _is_of_several(request):
        refusals = {answer.json.get("errorCode") for answer in (original, morag)}
        dry = '"isDryRun": true' in (request.text or "")
        if (both == (409, 409) or dry) and refusals <= {None, "REFERENCE_CONFLICT"}:
            return TRANSPLANTED
    return None


def is_empty(answer: Answer) -> bool:
    body = answer.json
    return isinstance(body, dict) and not any(isinstance(v, list) and v for v in body.values())


def refused(answer: Answer) -> bool:
    body = answer.json
    return (
        answer.status == 400
        and isinstance(body, dict)
        and body.get("errorCode") == "BAD_REQUEST"
        and bool(body.get("message"))
    )


def _message(answer: Answer) -> str:
    body = answer.json
    return str(body.get("message") or "") if isinstance(body, dict) else ""


def _conflicts(message: str) -> list[str]:
    return message.removeprefix(SEVERAL_CONFLICTS).rstrip(".").split(", ")


def _broken_rules(message: str) -> set[str]:
    """The rules of namespaces that a message tells of; nothing if it tells of anything else."""
    rules = {part[0].lower() + part[1:] for part in _conflicts(message) if part}
    return rules if all(rule.startswith(("namespace '", "expecting")) for rule in rules) else set()


def _lacks_last_page(request: Request, original: Answer, where: list[str]) -> bool:
    limited = any(name in ("limit-hash", "startHash") for name, _ in request.query)
    only = all(place.startswith(("/token: null ", "/hasMore: false ")) for place in where)
    return limited and only and "logEntries" in original.json


def _has_made_up_token(request: Request, original: Answer) -> bool:
    names = {name for name, _ in request.query}
    if "prefix-key" in names and _is_paged(request):
        return is_empty(original)
    return "/diff/" in request.path and "min-key" in names and ("page-token", "") in request.query


def _is_paged(request: Request) -> bool:
    return any(name in ("page-token", "pageToken") for name, _ in request.query)


def _is_of_several(request: Request) -> bool:
    return request.text is not None and request.text.count('"$H') > 1
