"""The databases of these tests: one for each module in `servers` with a `DATABASE`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Final

from tests.stores import servers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.stores.databases import Database


def _declared() -> dict[str, Database]:
    names = [module.name for module in iter_modules(servers.__path__)]
    modules = {name: import_module(f"{servers.__name__}.{name}") for name in names}
    return {name: each.DATABASE for name, each in modules.items() if hasattr(each, "DATABASE")}


DATABASES: Final[Mapping[str, Database]] = _declared()
