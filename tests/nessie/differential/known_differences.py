"""The intended differences between Nessie and Morag.

A difference counts as known only if both servers answer exactly as described. Each kind is counted
apart, so that it cannot hide other differences.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.nessie.differential.comparison import SEVERAL_CONFLICTS
from tests.nessie.differential.vocabulary import BAD_FILTERS, NUMBERS

if TYPE_CHECKING:
    from tests.nessie.differential.comparison import Answer
    from tests.nessie.differential.requests import Request

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
        "Another type under an existing content id: Nessie answers 400, moves the branch and"
        " cannot read it any more. Morag answers 400 and changes nothing. Only Morag is asked."
    ),
    MERGED_RENAME: (
        "A merge or transplant of a rename: Nessie deletes and does not put. In"
        " Morag it stays a rename. Only Morag is asked, on a branch that is dropped afterwards."
    ),
    EMPTY_MERGE: (
        "A merge from before the first commit: Nessie deletes everything on the target. In"
        " Morag there is nothing to merge. Only Morag is asked."
    ),
    LOST_KEY: (
        "A transplant in which one commit creates a key that the target has, and a later one"
        " deletes it: Nessie answers 500. Neither is asked if a dry run in Nessie fails."
    ),
    EQUAL_BASES: (
        "Criss-cross merges leave two merge bases of equal rank: which one Nessie takes"
        " depends on the order of a heap. Neither is asked."
    ),
    WRONG_BASE: (
        "A second merge of a longer branch into a shorter one: Nessie does not find the first"
        " merge, and merges again. Neither is asked if Nessie names a commit that is no base."
    ),
    UNSTORED: (
        "A merge that expects content under a key which the target does not have: Nessie looks"
        " for that content and answers 500. In Morag it is a conflict."
    ),
    BAD_INPUT: (
        "Nessie answers 500 to bad input. Morag answers 400 BAD_REQUEST, and neither"
        " changes a reference."
    ),
    BAD_FILTER: (
        "A filter that returns no boolean: Nessie notices when it applies the filter, so after"
        " other mistakes, and never if the listing is empty. Morag notices first."
    ),
    NO_ALLOW: "HTTP demands the header Allow in a 405. Nessie sends none, Morag does.",
    SPANNED: (
        "A write to a path such as trees/a/diff/b@: Nessie reads all of it as the name of a"
        " reference, Morag as a diff, which cannot be written to. Both refuse."
    ),
    NAMESPACES: (
        "A commit that breaks several rules of namespaces: both refuse, but do not report the"
        " same ones."
    ),
    TOKEN_BOUNDS: (
        "A page token that no server issued, together with bounds. A token behind the last key:"
        " Nessie refuses it if it finds a key between, Morag returns an empty page. A token before"
        " the prefix: Nessie stops at the first key without it, Morag starts at the prefix. An"
        " empty token of a diff: Nessie starts at the first key, Morag at min-key."
    ),
    LAST_PAGE: (
        "A log down to a limit, where the next page has only the limit itself: Nessie reports"
        " no further page, so that this commit is never listed. Morag returns that page."
    ),
    UNREAD: (
        "A list for an author, a null among the values of a property, or content of an unknown"
        " type: Nessie reads it only when it needs it, and reports other mistakes first."
        " Morag refuses the body at once."
    ),
    MEDIA: (
        "A configuration that is not sent as JSON: both refuse, but Nessie's message depends on"
        " the type, and an invalid media type is a 400 in Nessie, and a 415 in Morag."
    ),
    TRANSPLANTED: (
        "A transplant of several commits, or a dry run of one: Nessie compares with the head"
        " instead of with the result of the commits before, and forgets commits of which nothing"
        " is left (docs/decisions/0004). Both refuse, or neither writes, with other conflicts."
    ),
    JAVA_TEXT: "The message comes from a Java library. Only status and code are compared.",
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


def nothing_filtered(request: Request, nessie: Answer, morag: Answer) -> bool:
    """Whether Morag reports a bad filter that Nessie had no reason to apply."""
    filters = [value for name, value in request.query if name == "filter"]
    bad = any(value in BAD_FILTERS or value in NUMBERS for value in filters)
    unused = nessie.status in (400, 404) or (nessie.status == 200 and is_empty(nessie))
    return bad and unused and refused(morag) and _message(morag).startswith("Filter ")


def fault(nessie: Answer, morag: Answer) -> str | None:
    """The known fault behind a 500 of Nessie, if Morag answers correctly."""
    theirs, ours = nessie.json, morag.json
    if nessie.status != 500 or not isinstance(theirs, dict) or not isinstance(ours, dict):
        return None
    message = str(theirs.get("message"))
    if "ObjNotFoundException" in message:
        conflict = morag.status == 409 or ours.get("wasSuccessful") is False
        return UNSTORED if conflict else None
    # A request that has the same key twice may also have a mistake that comes first.
    missing = "Duplicate key" in message and ours.get("errorCode") == "REFERENCE_NOT_FOUND"
    return BAD_INPUT if missing or refused(morag) else None


def decided(request: Request, nessie: Answer, morag: Answer, where: list[str]) -> str | None:
    """The accepted difference between the answers, if any. Neither server writes in these cases."""
    both, message = (nessie.status, morag.status), _message(nessie)
    if nessie.status >= 400 and morag.status == 400 and _UNREAD.fullmatch(_message(morag)):
        return UNREAD
    if both in ((400, 415), (415, 415)) and request.path.endswith("/config/repository"):
        return MEDIA
    if both == (200, 200) and _lacks_last_page(request, nessie, where):
        return LAST_PAGE
    if both == (200, 200) and _has_invented_token(request, nessie):
        return TOKEN_BOUNDS
    if request.writes and both in ((400, 405), (404, 405)):
        taken = "/diff/" in request.path or "Reference name must start" in message
        return SPANNED if (taken or not nessie.body) and not morag.body else None
    if both == (409, 409):
        theirs, ours = _broken_rules(message), _broken_rules(_message(morag))
        if theirs and ours and (theirs <= ours or ours <= theirs):
            return NAMESPACES
    if both == (400, 200) and "must be greater than" in message and _is_paged(request):
        return TOKEN_BOUNDS if is_empty(morag) else None
    if request.path.endswith("/transplant") and _is_of_several(request):
        refusals = {answer.json.get("errorCode") for answer in (nessie, morag)}
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
    """The namespace rules that a message names, if it names nothing else."""
    rules = {part[0].lower() + part[1:] for part in _conflicts(message) if part}
    return rules if all(rule.startswith(("namespace '", "expecting")) for rule in rules) else set()


def _lacks_last_page(request: Request, nessie: Answer, where: list[str]) -> bool:
    limited = any(name in ("limit-hash", "startHash") for name, _ in request.query)
    only = all(path.startswith(("/token: null ", "/hasMore: false ")) for path in where)
    return limited and only and "logEntries" in nessie.json


def _has_invented_token(request: Request, nessie: Answer) -> bool:
    names = {name for name, _ in request.query}
    if "prefix-key" in names and _is_paged(request):
        return is_empty(nessie)
    return "/diff/" in request.path and "min-key" in names and ("page-token", "") in request.query


def _is_paged(request: Request) -> bool:
    return any(name in ("page-token", "pageToken") for name, _ in request.query)


def _is_of_several(request: Request) -> bool:
    return request.text is not None and request.text.count('"$H') > 1
