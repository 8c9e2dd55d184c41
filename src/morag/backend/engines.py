"""Declarations of engines, and the search for the engine of a URL's scheme."""

from __future__ import annotations

from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from morag.errors import StoreUrlInvalid
from morag.package_extras import install_advice, packages_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.backend.base import Backend
    from morag.backend.urls import StoreUrl

Opener: TypeAlias = "Callable[[StoreUrl], Backend]"

GROUP: Final = "morag.backends"
"""The entry points of engines. Each is named after the scheme of its URLs."""


class Traits(Struct, frozen=True):
    """Properties that a server needs to know before it opens a store.

    The defaults are those of a remote database.
    """

    embedded: bool = False
    """A read takes microseconds in this process, so the event loop may do it."""
    private: bool = False
    """Only one process at a time can have the store open for writing. See `base.Private`."""
    has_files: bool = False
    """The store consists of local files, which may be removed while it is open."""


class Engine(Struct, frozen=True):
    """The value that an entry point names. Loading it does not import the engine's driver."""

    opener: str
    """`module:function`. Importing the module may import the driver."""
    traits: Traits = Traits()
    extra: str = ""
    """The extra of this package that installs the driver."""

    def load(self) -> Opener:
        opener: Opener = resolve_name(self.opener)
        return opener


def find_engine(scheme: str) -> Engine | Opener:
    """The engine that is registered for the scheme, or a bare function that opens its stores."""
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    if scheme not in known:
        raise StoreUrlInvalid(
            f"'{scheme}:' is not a kind of store; known are: {', '.join(sorted(known))}"
        )
    found: Engine | Opener = known[scheme].load()
    return found


def traits_of(scheme: str) -> Traits:
    """The traits of the engine. A bare function has none, so it counts as a remote database."""
    engine = find_engine(scheme)
    return engine.traits if isinstance(engine, Engine) else Traits()


def load_opener(scheme: str) -> Opener:
    """Import the engine, and with it its driver."""
    extra = ""
    try:
        engine = find_engine(scheme)
        if not isinstance(engine, Engine):
            return engine
        extra = engine.extra
        return engine.load()
    except ImportError as error:
        raise StoreUrlInvalid(_explained(scheme, extra, error)) from error


def _explained(scheme: str, extra: str, error: ImportError) -> str:
    """The missing module may belong to a package of another name: `bson` is a part of pymongo, and
    the package `bson` is something else. So the driver is named, and not the module."""
    driver = "".join(f", {package}," for package in packages_of(extra)[:1])
    state = "is not installed" if isinstance(error, ModuleNotFoundError) else f"is broken ({error})"
    advice = f"run: {install_advice(extra)}" if extra else f"it needs the module '{error.name}'"
    return f"The driver for '{scheme}:'{driver} {state}; {advice}"
