"""The traits that engines declare, compared with their backends."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

import pytest

from morag.backend import engines
from morag.backend.base import Private
from morag.backend.engines import GROUP, Engine, find_engine, load_opener
from morag.errors import StoreUrlInvalid


@pytest.mark.parametrize("scheme", sorted(entry_points(group=GROUP).names))
def test_an_engine_is_private_exactly_if_its_backend_is(scheme: str) -> None:
    """A server reads the trait before it opens a store, the kernel the attribute of the backend."""
    engine = find_engine(scheme)
    assert isinstance(engine, Engine)
    module, _, opener = engine.opener.partition(":")
    pytest.importorskip(module, exc_type=ModuleNotFoundError)
    opened = getattr(sys.modules[module], opener).__annotations__["return"]
    backend = getattr(sys.modules[module], opened)
    (attribute,) = Private.__annotations__
    assert getattr(backend, attribute, False) is engine.traits.private


@pytest.mark.parametrize(
    ("extra", "advice"),
    [("paper", r"pip install 'morag\[paper\]'"), ("", "it needs the module 'no_such_driver'")],
)
def test_a_driver_that_is_not_installed_is_reported(
    monkeypatch: pytest.MonkeyPatch, extra: str, advice: str
) -> None:
    engine = Engine("no_such_driver:open", extra=extra)
    monkeypatch.setattr(engines, "find_engine", lambda scheme: engine)
    with pytest.raises(
        StoreUrlInvalid, match=f"^The driver for 'paper:' is not installed; {advice}$"
    ):
        load_opener("paper")


def test_an_unknown_kind_of_store_is_reported_with_the_known_ones() -> None:
    with pytest.raises(
        StoreUrlInvalid,
        match=r"^'paper:' is not a kind of store; known are: .*, memory, .*, sqlite$",
    ):
        find_engine("paper")
