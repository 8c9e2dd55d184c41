"""The web pages are complete and safe, and load nothing from other servers."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING, Final

import pytest

import morag
from morag.api import web_pages
from morag.api.app import ENDPOINTS
from tests.api.described_api import DescribedApi

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.api.http import Response

PAGES: Final = [page.path for page in web_pages.pages(ENDPOINTS)]
_VOID: Final = {"meta", "link", "br", "hr", "img", "input"}
_OUTSIDE_THE_API: Final = "/health/ready"
"""Answered before a request reaches the API."""


@pytest.fixture(scope="module")
def api() -> Iterator[DescribedApi]:
    with morag.open("memory:") as repository:
        yield DescribedApi(repository)


class Page(HTMLParser):
    """The parts of a page. Elements that are not properly nested are an error."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.metas: dict[str, str] = {}
        self.inline: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(response.body.decode())
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        if tag not in _VOID:
            self._open.append(tag)
        if tag == "meta" and "name" in found:
            self.metas[found["name"]] = found["content"]
        if tag == "style" or (tag == "script" and "src" not in found):
            self.inline.append(tag)
        self.inline += [name for name in found if name == "style" or name.startswith("on")]
        self.targets += [found[name] for name in ("href", "src") if name in found]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_is_complete_and_fits_phones_and_dark_mode(api: DescribedApi, path: str) -> None:
    response = api.ask("GET", path)
    assert response.status == 200
    assert dict(response.headers)[b"content-type"] == b"text/html;charset=UTF-8"
    assert response.body.startswith(b'<!doctype html>\n<html lang="en">')
    page = Page(response)
    assert "Morag" in page.text
    assert "width=device-width" in page.metas["viewport"]
    assert page.metas["color-scheme"] == "light dark"


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_links_lead_to_paths_of_this_server(api: DescribedApi, path: str) -> None:
    targets = set(Page(api.ask("GET", path)).targets) - {"data:,", _OUTSIDE_THE_API}
    assert "/openapi.json" in targets
    for target in targets:
        assert target.startswith("/") and not target.startswith("//")
        assert api.ask("GET", target).status == 200, target


def test_the_home_page_links_to_everything(api: DescribedApi) -> None:
    targets = Page(api.ask("GET", "/")).targets
    assert {"/docs", "/openapi.json", "/api/v2/config", _OUTSIDE_THE_API} <= set(targets)


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_has_nothing_that_its_policy_forbids(api: DescribedApi, path: str) -> None:
    assert Page(api.ask("GET", path)).inline == []


@pytest.mark.parametrize("path", PAGES)
def test_pages_load_nothing_from_other_servers(api: DescribedApi, path: str) -> None:
    response = api.ask("GET", path)
    headers = dict(response.headers)
    policy = dict(
        part.strip().split(" ", 1)
        for part in headers[b"content-security-policy"].decode().split(";")
    )
    assert policy["default-src"] == "'none'"
    assert {policy["script-src"], policy["style-src"], policy["connect-src"]} == {"'self'"}
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert b"http://" not in response.body
    assert b"https://" not in response.body


@pytest.mark.parametrize("path", PAGES)
def test_pages_ignore_the_accept_header(api: DescribedApi, path: str) -> None:
    assert api.ask("GET", path, "", ((b"accept", b"text/html"),)).status == 200


@pytest.mark.parametrize("path", PAGES)
def test_head_answers_like_get(api: DescribedApi, path: str) -> None:
    assert api.ask("HEAD", path) == api.ask("GET", path), "the HTTP server leaves out the body"


def test_descriptions_cannot_smuggle_elements_into_the_page(api: DescribedApi) -> None:
    script = api.ask("GET", "/docs/docs.js").body
    for way in (b"innerHTML", b"outerHTML", b"insertAdjacent", b"document.write", b"eval("):
        assert way not in script
