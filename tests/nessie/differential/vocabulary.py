"""The words that requests are made of: names, keys, content, metadata, filters, and wrong ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from random import Random

    from tests.nessie.differential.symbols import Json

Key: TypeAlias = tuple[str, ...]

DEFAULT: Final = "main"
BRANCHES: Final = ("dev", "fix", "feature/x", "feature/y.z", "rel-1.0", "a.b_c-d", "Main", "zz")
TAGS: Final = ("v1", "v1.0", "rel/2", "Tag-a", "dev2")
WRONG_NAMES: Final = (
    *("", "-", "HEAD", "head", "DETACHED", "detached", "1abc", "a..b", "abc.", "abc/", "a b"),
    *("a@b", "a~1", "ü", "deadbeef", "nope", "no/pe", "a:b", "x" * 300, "cafebabecafe", "main@"),
)
NOWHERE: Final = "deadbeef" * 8
WRONG_HASHES: Final = (NOWHERE, "cafebabe12345678", "xyz", "abc", "", "~1", "0", "e" * 65, "12 34")
MOMENTS: Final = (
    *("2001-01-01T00:00:00.000Z", "2101-01-01T00:00:00.123Z", "2001-01-01T00:00:00Z"),
    *("978307200000", "4134027600000", "2001-13-01T00:00:00.000Z", "now"),
)

NAMESPACES: Final[tuple[Key, ...]] = (
    *(("a",), ("b",), ("a", "x"), ("a", "x", "deep"), ("n s",), ("d.ot",), ("b", "ü"), ("t1",)),
)
LEAVES: Final = ("t0", "t1", "t2", "t3", "t4", "t5", "v1", "a", "x", "T1", "t10", "a!")
# Strings are ordered by UTF-16 units: the smile comes before the wide tilde.
ODD_LEAVES: Final = (
    *("with.dots", "sl/ash", "per%cent", "st*r", "back\\slash", "é", "\U0001f600", "\uff5e", " "),
    *("q?x", "h#x", "semi;colon", "pl+us", "{b}[r]", "it's", 'say "hi"', "日本", "..", "&=", "-"),
    "l" * 150,
)
WRONG_LEAVES: Final = ("", ".", "bell\x07", "del\x7f", "\x00", "gs\x1d", "x" * 501, "new\nline")

TYPES: Final = ("ICEBERG_TABLE", "ICEBERG_VIEW", "DELTA_LAKE_TABLE", "UDF")
MESSAGES: Final = ("", " ", "x", "a message", "two\nlines", "ünï ☃ \U0001f600", 'with "quotes"')
PEOPLE: Final = ("ann", "Bob <bob@x.org>", "", "Zoë", "c,d")
AUTHOR_TIMES: Final = (
    *("2020-02-03T04:05:06.123456789Z", "2020-02-03T04:05:06Z", "2020-02-03T04:05:06+02:00"),
    *("2020-02-03T04:05:06.100Z", "1969-12-31T23:59:59.999Z", "2020-02-03", "", "x"),
)
BEHAVIORS: Final = ("NORMAL", "FORCE", "DROP")

NUMBERS: Final = ("0", "-1", "1", "3", "1000000", "2147483648", "abc", "", "1.5", " 2", "+3", "0x1")
FETCHES: Final = ("ALL", "MINIMAL", "all", "NONE", "", "ALL ")
BOOLEANS: Final = ("true", "false", "TRUE", "True", "1", "yes", "")
WRONG_TOKENS: Final = ("", "!!!", "abcd", "garbage!", "YWJj", "00", NOWHERE, "AAAA", "ü", "a" * 999)

COMMON_FILTERS: Final = (
    *("", "true", "false", "(((", "1", "null", "'abc'", "1/0 == 1", "nope == 1", "this is not CEL"),
    *("5 % 2 == 1 && 7 / 2 == 3", "{'a': 1}['a'] == 1", "'a' == 'a' // comment", "[1, 2][5] == 1"),
    *("duration('1h') > duration('30m')", "size('ü') == 1", "'\\U0001f600'.size() == 1"),
    "timestamp('2020-01-01T00:00:00Z').getFullYear() == 2020",
    "string(1) == '1' && int('2') == 2 && double('1.5') > 1.0",
    *("true || 1/0 == 1", "1/0 == 1 || true", "false && 1/0 == 1", "'abc'.matches('[a-z]+')"),
    *("'x' in ['x', 'y']", "1 in [1, 2]", "!true", "!1", "true ? 1 : 2", "1 == 1.0", "'a' == 1"),
    *(
        "has(nope.x)",
        "9223372036854775807 + 1 > 0",
        "uint(1) == 1u",
        "b'a' == b'a'",
        "-3 % 2 == -1",
    ),
)
# Filters that compile in Nessie, but fail or do not return a boolean.
BAD_FILTERS: Final = (
    *("1", "null", "'abc'", "1/0 == 1", "[1, 2][5] == 1", "true ? 1 : 2", "entry.name", "key"),
    *("ref", "commit", "type(entry.name) == string", "9223372036854775807 + 1 > 0"),
)
WRONG_FILTERS: Final = (
    *("(((", "nope == 1", "entry.nope", "key.nope", "commit.nope", "this is not CEL", "true", "1"),
)
REFERENCE_FILTERS: Final = (
    *("ref.name == 'main'", "ref.name.startsWith('f')", "refType == 'TAG'", "refType != 'BRANCH'"),
    *("commit.message == 'x'", "refMeta.numTotalCommits > 3", "commit.author == 'ann'", "ref.nope"),
    *("ref.name.matches('.*[0-9]')", "refMeta.numCommitsAhead > 0", "ref.type == 'BRANCH'", "ref"),
    *("ref.name in ['main', 'dev']", "refMeta.numCommitsBehind == 0", "commit.committer == ''"),
    *("ref.hash == 'x'", "size(ref.name) > 3", "ref.name.endsWith('x') || ref.name < 'f'"),
    "has(refMeta.commonAncestorHash)",
    "refMeta.commitMetaOfHEAD.message != ''",
)
HISTORY_FILTERS: Final = (
    *("commit.author == 'ann'", "commit.authors.exists(a, a == 'ann')", "commit.committer == ''"),
    *("commit.message.contains('x')", "commit.message == ''", "'job' in commit.properties"),
    *("commit.signedOffBy == 'ann'", "size(commit.message) > 5", "size(operations) == 0", "commit"),
    "commit.commitTime < timestamp('2020-01-01T00:00:00Z')",
    "timestamp(commit.commitTime) > timestamp('2020-01-01T00:00:00Z')",
    "commit.authorTime < timestamp('2021-01-01T00:00:00Z')",
    *("operations.exists(op, op.type == 'DELETE')", "operations.all(op, op.type == 'PUT')"),
    *("operations.exists(op, op.key == 't1')", "operations.exists(op, op.namespace == 'a')"),
    *("operations.exists(op, op.name == 't2')", "operations.exists_one(op, op.type == 'PUT')"),
    "operations.exists(op, op.type == 'PUT' && op.content.type == 'ICEBERG_VIEW')",
    "operations.exists(op, op.keyElements[0] == 'a')",
    "operations.filter(op, op.name.startsWith('t')).size() > 1",
    *("size(commit.parentCommitHashes) > 1", "commit.nope == 1", "size(commit.allProperties) > 0"),
    *("commit.properties['job'] == 'j1'", "has(commit.properties.job)", "size(commit.authors) > 1"),
    "commit.allSignedOffBy.exists(s, s.startsWith('a'))",
    "operations.exists(op, op.content.id == 'x')",
)
ENTRY_FILTERS: Final = (
    *("entry.contentType == 'NAMESPACE'", "entry.contentType in ['ICEBERG_VIEW', 'UDF']"),
    *("entry.namespace == 'a'", "entry.namespace.startsWith('a')", "entry.name == 't1'"),
    *("entry.key == 'a.t1'", "entry.encodedKey == 'a.t1'", "size(entry.keyElements) == 1"),
    *("entry.keyElements[0] == 'a'", "entry.namespaceElements == ['a', 'x']", "entry.foo == 1"),
    *("entry.keyElements.all(e, e.size() > 2)", "entry.keyElements.exists_one(e, e == 'a')"),
    *(
        "entry.keyElements.map(e, e + 'x')[0] == 'ax'",
        "has(entry.name)",
        "entry.name + '!' == 't1!'",
    ),
    *("entry.name.matches('^t[0-9]$')", "entry.name < 'm'", "entry == null", "entry.name.foo()"),
    *("entry.keyElements + ['x'] == ['t1', 'x']", "entry.name.startsWith(1)", "entry.name == 1"),
    *("entry.name", "entry.name ==", "entry.keyElements[5] == 'x'", "entry.namespace == ''"),
    *("entry.name.contains('t') ? true : false", "entry.name == r't1'", 'entry.name == "t1"'),
    *("entry.name.size() == 2", "entry.name in ['t1', 't2']", "entry.key.contains('.')"),
    "entry.keyElements.filter(e, e == 'a').size() == 1",
    "type(entry.name) == string",
    "size(entry.key) < 100",
)
DIFF_FILTERS: Final = (
    *("key.name == 't1'", "key.namespace == 'a'", "size(key.keyElements) == 2", "name == 't1'"),
    *("key.key == 'a.t1' || key.encodedKey == 't2'", "key.keyElements[0] == 'a'", "key"),
    *("key.namespaceElements.size() == 0", "key.name.startsWith('t')", "key.nope"),
)


def content(random: Random, kind: str, elements: Key, id: str | None = None) -> Json:
    n = random.randrange(6)
    made: Json = {"type": kind}
    if kind == "ICEBERG_TABLE":
        made |= {"metadataLocation": f"s3://b/{n}.json", "snapshotId": n, "schemaId": n % 2}
        made |= {"specId": 0, "sortOrderId": n % 3}
        if random.random() < 0.1:
            made["snapshotId"] = random.choice([2**62, -(2**63), "17", 1.9, -1])
    elif kind == "ICEBERG_VIEW":
        made |= {"metadataLocation": f"s3://b/v{n}.json", "versionId": n, "schemaId": n % 2}
        if random.random() < 0.4:
            made |= {"sqlText": f"select {n}", "dialect": "spark"}
    elif kind == "DELTA_LAKE_TABLE":
        made |= {"metadataLocationHistory": ["m"] * (n % 3), "checkpointLocationHistory": ["c"]}
        if n % 2:
            made["lastCheckpoint"] = f"cp{n}"
    elif kind == "UDF":
        made |= {"versionId": f"v{n}", "signatureId": f"s{n}"} if n % 2 else {}
        made |= {"metadataLocation": f"s3://b/u{n}"} if n % 3 else {"sqlText": "x", "dialect": "d"}
    else:
        made["elements"] = list(elements)
        if n % 2:
            made["properties"] = {f"p{i}": f"v{n}" for i in range(n)}
    if id is not None:
        made["id"] = id
    elif random.random() < 0.2:
        made["id"] = None
    return made


def meta(random: Random) -> Json:
    made: Json = {"message": random.choice(MESSAGES)}
    if random.random() < 0.3:
        made["authors"] = random.sample(PEOPLE, random.randrange(3))
    elif random.random() < 0.2:
        made["author"] = random.choice(PEOPLE)
    if random.random() < 0.15:
        made["allSignedOffBy"] = random.sample(PEOPLE, random.randrange(3))
    elif random.random() < 0.1:
        made["signedOffBy"] = random.choice(PEOPLE)
    if random.random() < 0.15:
        made["allProperties"] = {"job": ["j1", "j2"][: random.randrange(3)], "Key": [""]}
    elif random.random() < 0.15:
        made["properties"] = {"job": random.choice(["j1", ""]), "other": "ü"}
    if random.random() < 0.1:
        made["authorTime"] = random.choice(AUTHOR_TIMES)
    if random.random() < 0.02:
        made[random.choice(["committer", "commitTime", "hash", "parentCommitHashes", "no"])] = "x"
    if random.random() < 0.1:
        made |= dict.fromkeys(["hash", "committer", "commitTime"])
    return made


def encoded(random: Random, key: Key) -> str:
    """A key for a path or a query, in one of the spellings that the server understands."""
    if random.random() < 0.4:
        marks = {".": "*.", "*": "**", "/": "*{", "\\": "*}", "%": "*["}
        return "." + ".".join("".join(marks.get(c, c) for c in part) for part in key)
    return ".".join(part.replace(".", "\x1d") for part in key)


def some_key(random: Random) -> Key:
    parent = random.choice(NAMESPACES) if random.random() < 0.6 else ()
    return (*parent, random.choice(ODD_LEAVES if random.random() < 0.15 else LEAVES))
