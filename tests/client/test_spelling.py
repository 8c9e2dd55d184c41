"""How the client writes references and keys into URLs, and parses server URIs."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morag import BadRequest, ContentKey
from morag.api.url_parsing import key_of_text
from morag.client.server_uris import parse_server_uri
from morag.client.specs import key_path, key_text, path_of, spec_of

ELEMENTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=[chr(c) for c in (*range(32), 127)])
    | st.sampled_from("./\\%*{}[]@~^"),
    min_size=1,
    max_size=8,
)


@given(st.lists(ELEMENTS, min_size=1, max_size=5))
def test_a_server_reads_the_key_that_the_client_wrote(elements: list[str]) -> None:
    key = ContentKey(tuple(elements))
    assert key_of_text(key_text(key)) == key
    path = key_path(key)
    assert unquote(path) == key_text(key)
    assert path.isascii() and "/" not in path and path not in (".", "..")


@pytest.mark.parametrize(
    ("elements", "text"),
    [
        (("a",), "a"),
        (("a", "b"), "a.b"),
        (("a*b", "c"), "a*b.c"),
        (("a.b", "c*d"), ".a*.b.c**d"),
        (("a/b\\c%d",), ".a*{b*}c*[d"),
        (("a", "b c"), "a.b c"),
    ],
)
def test_keys_are_escaped_only_where_necessary(elements: tuple[str, ...], text: str) -> None:
    assert key_text(ContentKey(elements)) == text


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("main", "main"),
        ("-", "-"),
        ("a/b", "a%2Fb"),
        ("main@", "main"),
        ("main@ABCDEF0123", "main@abcdef0123"),
        ("@abcdef0123~2", "@abcdef0123~2"),
        ("main^2", "main%5E2"),
        ("main*1685185847230", "main%2A1685185847230"),
        ("main*2023-05-27T11:10:47Z", "main%2A1685185847000"),
        ("main*2023-05-27T11:10:47.230Z", "main%2A1685185847230"),
        ("main*2023-05-27T11:10:47.230001Z", "main%2A2023-05-27T11%3A10%3A47.230001Z"),
    ],
)
def test_references_are_percent_encoded(text: str, path: str) -> None:
    assert path_of(spec_of(text)) == path


@pytest.mark.parametrize("text", ["", "@", "~1", "a b", "main@zz", "main~0", "../x", "a\r\nb"])
def test_an_invalid_ref_spec_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        spec_of(text)


@pytest.mark.parametrize(
    ("uri", "origin", "api"),
    [
        ("http://127.0.0.1:19120/api/v2", "http://127.0.0.1:19120", "/api/v2"),
        ("http://127.0.0.1:19120/api/v2/", "http://127.0.0.1:19120", "/api/v2"),
        ("http://127.0.0.1:19120", "http://127.0.0.1:19120", "/api/v2"),
        ("http://127.0.0.1:19120/", "http://127.0.0.1:19120", "/api/v2"),
        ("HTTPS://Catalog.Example/lake", "https://catalog.example", "/lake/api/v2"),
        ("https://catalog.example:443/lake/api/v2", "https://catalog.example", "/lake/api/v2"),
        ("http://[::1]:80/", "http://[::1]", "/api/v2"),
        ("http://[::1]:19120", "http://[::1]:19120", "/api/v2"),
        ("http://käse.example", "http://xn--kse-qla.example", "/api/v2"),
    ],
)
def test_a_server_uri_is_parsed(uri: str, origin: str, api: str) -> None:
    server = parse_server_uri(uri)
    assert (server.origin, server.api) == (origin, api)
    assert server.own == api.removesuffix("/api/v2") + "/morag/v1"


@pytest.mark.parametrize(
    "uri",
    [
        *("", "localhost:19120", "127.0.0.1", "ftp://x", "http://", "http:///api/v2", "http://x:y"),
        *(
            "http://x:99999",
            "http://x/?a=b",
            "http://x/#a",
            "http://x/a b",
            "http://x/ä",
            "http://[",
        ),
        *("http://x/api/v1", "file:///x", "http://" + "x" * 70),
    ],
)
def test_an_invalid_server_uri_is_refused(uri: str) -> None:
    with pytest.raises(BadRequest, match="Server URI"):
        parse_server_uri(uri)


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("localhost:19120", "must start with http:// or https://"),
        ("http:///api/v2", "has no host"),
        ("http://x:99999", "cannot be read: Port out of range"),
        ("http://[", "cannot be read: Invalid IPv6 URL"),
        ("http://x/?a=b", "must not have a query"),
        (5, "must be a string"),
    ],
)
def test_a_refused_server_uri_gets_the_reason(uri: str, reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        parse_server_uri(uri)


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("http://ann:s3cret@x/api/v2", "pass a token instead"),
        ("http://ann:s3cret@x:y", "invalid host or port"),
        ("http://ann:s3cret/@x", "invalid host or port"),
    ],
)
def test_secrets_in_a_server_uri_are_refused_and_not_repeated(uri: str, reason: str) -> None:
    with pytest.raises(BadRequest, match=reason) as raised:
        parse_server_uri(uri)
    assert "s3cret" not in str(raised.value)
