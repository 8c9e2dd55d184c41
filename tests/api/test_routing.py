"""The cached router finds the same routes as the router, whatever it has cached."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morag.api.routing import CachedRouter, Match, Router
from morag.api.url_parsing import UrlInvalid

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


def found(find: CachedRouter[str] | Router[str], path: str) -> Match[str] | str | None:
    try:
        return find.find(path)
    except UrlInvalid:
        return "invalid"


@given(st.lists(paths, max_size=20))
def test_it_finds_the_same_as_the_router(requested: list[str]) -> None:
    plain, cached = router(), CachedRouter(router())
    for path in requested:
        expected, got = found(plain, path), found(cached, path)
        assert getattr(got, "handlers", got) == getattr(expected, "handlers", expected)
        assert getattr(got, "parameters", got) == getattr(expected, "parameters", expected)


@pytest.mark.parametrize("at", ["@", "%40"])
def test_paths_that_differ_in_hashes_share_a_cache_entry(at: str) -> None:
    cached = CachedRouter(router())
    for hash in HASHES:
        match = cached.find(f"/trees/main{at}{hash}/history/commit")
        assert match is not None
        assert match.parameters == {"branch": f"main@{hash}"}
    assert cached._find_cached.cache_info().currsize == 1
