"""Every file and directory that the documentation names exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parents[1]
_SOURCE: Final = _ROOT / "src" / "morag"
_PAGES: Final = sorted(
    [*_ROOT.glob("*.md"), *_ROOT.glob("docs/**/*.md")], key=lambda page: page.as_posix()
)
_FILE: Final = re.compile(r"(?<![\w/.*<>@:-])([\w.-]+/)*[\w.-]+\.(?:py|md)\b(?!:|/)")
_DIRECTORY: Final = re.compile(r"`((?:[\w.-]+/)+)`")
_LINK: Final = re.compile(r"\]\((?!https?:)([^)#]+)[^)]*\)")


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(_ROOT)))
def test_every_path_on_the_page_exists(page: Path) -> None:
    """A path starts at the root of the repository, or at src/morag."""
    text = _LINK.sub("]", page.read_text())
    named = {found[0] for found in _FILE.finditer(text)}
    named |= {found[1] for found in _DIRECTORY.finditer(text)}
    assert not {path for path in named if not _exists(path)}


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(_ROOT)))
def test_every_link_on_the_page_leads_to_a_file(page: Path) -> None:
    links = {found[1] for found in _LINK.finditer(page.read_text())}
    assert not {link for link in links if not (page.parent / link).exists()}


def _exists(path: str) -> bool:
    return (_SOURCE / path).exists() or (_ROOT / path).exists()
