"""The differences that are known: those that are meant, and those that Morag still owes.

A difference counts as known only if both answer exactly as its row says. Every one is counted, so
that a row cannot hide more than it names. Nothing that is owed makes the two catalogs differ.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.original.differential.canonical import SEVERAL_CONFLICTS, split_violations
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

LAST_PAGE: Final = "owed: last page at the limit"
ID_TWICE: Final = "owed: one id under two keys"
CONFLICT_ORDER: Final = "owed: conflicts in another order"
TOKEN_OF_NOTHING: Final = "owed: token where there is nothing"
EMPTY_KEY: Final = "owed: empty key"
MATRIX: Final = "owed: matrix parameters"
TOKEN_FIRST: Final = "owed: token and min-key"
DETACHED: Final = "owed: DETACHED has no head"
RAW_SLASHES: Final = "owed: raw slashes"
FILTER_FIRST: Final = "owed: filter before token"
SOME_VIOLATIONS: Final = "owed: not all violations"
UNREAD: Final = "owed: body that is taken"

OWED: Final = {
    LAST_PAGE: "A log that ends at its limit and at the end of a page still names a next page.",
    ID_TWICE: "A merge that brings one content id under two keys is 400 before any conflict.",
    CONFLICT_ORDER: "A key that is deleted and put again is told of among the deleted ones.",
    TOKEN_OF_NOTHING: "A token is not looked at where there are no commits.",
    EMPTY_KEY: "An empty key in a query means no bound; Morag answers 404.",
    MATRIX: "A path with matrix parameters below a reference is not found.",
    TOKEN_FIRST: "A token takes the place of min-key; Morag heeds both.",
    DETACHED: "DETACHED is not a branch to write to, which the original says in other words.",
    RAW_SLASHES: "OPTIONS of a path in which a name keeps its slashes is not found.",
    FILTER_FIRST: "A token that is none is told of before a filter that is wrong.",
    SOME_VIOLATIONS: "Of several violations only some are told.",
    UNREAD: "A value of the wrong kind, of which the original makes something, is refused.",
}


class Known:
    def __init__(self) -> None:
        self.counts = Counter(dict.fromkeys((*REASONS, *OWED), 0))

    def count(self, what: str) -> None:
        assert what in REASONS or what in OWED
        self.counts[what] += 1


def nothing_filtered(request: Request, answer: Answer) -> bool:
    """Whether the original had no chance to notice that a filter is bad."""
    filters = [value for name, value in request.query if name == "filter"]
    bad = any(value in BAD_FILTERS or value in NUMBERS for value in filters)
    return answer.status == 200 and bad and is_empty(answer)


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
    both, said = (original.status, morag.status), _message(original)
    if request.writes and both in ((400, 405), (404, 405)):
        unknown = not original.body or "Reference name must start" in said
        return SPANNED if unknown and not morag.body else None
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


def owed(request: Request, original: Answer, morag: Answer, where: list[str]) -> str | None:
    """What Morag should do as the original does, but does not yet. Again, neither writes."""
    both, said, says = (original.status, morag.status), _message(original), _message(morag)
    names = {name for name, _ in request.query}
    at_limit = all(place.startswith(("/token:", "/hasMore:")) for place in where)
    told, tells = ({*split_violations(message)} for message in (said, says))
    in_any_order = sorted(_conflicts(said)) == sorted(_conflicts(says))
    unread = says.startswith("The request body cannot be read")
    harmless = both[0] >= 400 or request.path.endswith("/contents")
    holds = {
        LAST_PAGE: both == (200, 200) and at_limit and {*names} & {"limit-hash", "startHash"},
        ID_TWICE: both == (400, 409) and said.startswith("Duplicate content ID"),
        CONFLICT_ORDER: both == (409, 409) and in_any_order,
        TOKEN_OF_NOTHING: both == (200, 400) and _is_paged(request) and is_empty(original),
        EMPTY_KEY: both == (200, 404) and not morag.body and _has_empty_key(request),
        MATRIX: ";" in request.path and original.status == 404 and not original.body,
        TOKEN_FIRST: both == (200, 200) and "min-key" in names and _is_paged(request),
        DETACHED: both == (400, 400) and said == "Cannot resolve DETACHED to HEAD",
        RAW_SLASHES: both == (200, 404) and request.method == "OPTIONS",
        FILTER_FIRST: both == (400, 400) and _is_paged(request) and says.startswith("Filter"),
        SOME_VIOLATIONS: both == (400, 400) and tells < told,
        UNREAD: unread and harmless,
    }
    return next((what for what, is_it in holds.items() if is_it), None)


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


def _is_paged(request: Request) -> bool:
    return any(name in ("page-token", "pageToken") for name, _ in request.query)


def _has_empty_key(request: Request) -> bool:
    keys = ("key", "min-key", "max-key", "prefix-key", "name")
    return any(name in keys and value in ("", ".") for name, value in request.query)


def _is_of_several(request: Request) -> bool:
    return request.text is not None and request.text.count('"$H') > 1
