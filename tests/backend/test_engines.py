"""The traits that engines declare, compared with their backends."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import pytest

from morag.backend import engines
from morag.backend.base import Private
from morag.backend.engines import GROUP, Engine, find_engine, load_opener
from morag.errors import StoreUrlInvalid
from morag.package_extras import packages_of

if TYPE_CHECKING:
    from pathlib import Path


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
    ("extra", "message"),
    [
        (
            "mongodb",
            "The driver for 'paper:', pymongo, is not installed; run: pip install 'morag[mongodb]',"
            " or in a clone: .venv/bin/pip install -e '.[mongodb]'",
        ),
        ("", "The driver for 'paper:' is not installed; it needs the module 'no_such_driver'"),
    ],
)
def test_a_driver_that_is_not_installed_is_reported_with_its_package(
    monkeypatch: pytest.MonkeyPatch, extra: str, message: str
) -> None:
    engine = Engine("no_such_driver:open", extra=extra)
    monkeypatch.setattr(engines, "find_engine", lambda scheme: engine)
    with pytest.raises(StoreUrlInvalid) as raised:
        load_opener("paper")
    assert str(raised.value) == message


def test_another_package_with_the_module_of_the_driver_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "foreign_driver.py").write_text("from json import ObjectId\n")
    monkeypatch.syspath_prepend(tmp_path)
    engine = Engine("foreign_driver:open", extra="mongodb")
    monkeypatch.setattr(engines, "find_engine", lambda scheme: engine)
    with pytest.raises(StoreUrlInvalid, match=r"'paper:', pymongo, is broken \(cannot import name"):
        load_opener("paper")


@pytest.mark.parametrize("scheme", sorted(entry_points(group=GROUP).names))
def test_the_extra_of_every_driver_installs_a_package(scheme: str) -> None:
    engine = find_engine(scheme)
    assert isinstance(engine, Engine)
    assert bool(packages_of(engine.extra)) is bool(engine.extra)


def test_an_unknown_kind_of_store_is_reported_with_the_known_ones() -> None:
    with pytest.raises(
        StoreUrlInvalid,
        match=r"^'paper:' is not a kind of store; known are: .*, memory, .*, sqlite$",
    ):
        find_engine("paper")
