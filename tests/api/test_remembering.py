"""The router's memory finds what the router finds, whatever was asked for before."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morag.api.paths import UrlInvalid
from morag.api.remembering import Remembering
from morag.api.routing import Match, Router

HASHES: Final = ("0" * 64, "f" * 64, "aB" * 32, "40" + "1" * 62)
TEMPLATES: Final = (
    "/trees/{ref}",
    "/trees/{ref}/contents/{key}",
    "/trees/{from}/diff/{to}",
    "/trees/{branch}/history/commit",
)

places = st.tuples(
    st.sampled_from(("", "main", "a/b", "!hash!", "main%2Fx")),
    st.sampled_from(("", "@", "%40")),
    st.sampled_from(("", "~1", *HASHES, f"{HASHES[0]}~2", "!hash!")),
).map("".join)
paths = st.one_of(
    places.map("/trees/{}".format),
    st.tuples(places, places).map(lambda pair: "/trees/{}/diff/{}".format(*pair)),
    st.tuples(places, places).map(lambda pair: "/trees/{}/contents/{}".format(*pair)),
    places.map("/trees/{}/history/commit".format),
)


def router() -> Router[str]:
    made: Router[str] = Router()
    for template in TEMPLATES:
        made.add("GET", template, template)
    return made


def found(find: Remembering[str] | Router[str], path: str) -> Match[str] | str | None:
    try:
        return find.find(path)
    except UrlInvalid:
        return "invalid"


@given(st.lists(paths, max_size=20))
def test_it_finds_what_the_router_finds(asked: list[str]) -> None:
    plain, remembering = router(), Remembering(router())
    for path in asked:
        expected, got = found(plain, path), found(remembering, path)
        assert getattr(got, "template", got) == getattr(expected, "template", expected)
        assert getattr(got, "parameters", got) == getattr(expected, "parameters", expected)


@pytest.mark.parametrize("at", ["@", "%40"])
def test_paths_with_other_hashes_are_one_path(at: str) -> None:
    remembering = Remembering(router())
    for hash in HASHES:
        match = remembering.find(f"/trees/main{at}{hash}/history/commit")
        assert match is not None
        assert match.parameters == {"branch": f"main@{hash}"}
    assert remembering._remembered.cache_info().currsize == 1
