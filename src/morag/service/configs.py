"""Configurations of the repository, by the names of their types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from morag.errors import BadRequest
from morag.model.configs import CONFIG_TYPES
from morag.model.lenient_json import converted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.model.configs import RepositoryConfig
    from morag.versions.repository import Repository


class Configs:
    def __init__(self, repository: Repository) -> None:
        self._configs = repository.configs

    def read(self, type_names: Sequence[str]) -> tuple[RepositoryConfig, ...]:
        """The stored configurations of these types. Unknown names are refused."""
        return tuple(self._configs.get([_config_type(name) for name in type_names]))

    def update(self, config: RepositoryConfig) -> RepositoryConfig | None:
        """Store the configuration and return the previous one."""
        return self._configs.update(config)


def config_of(document: object) -> RepositoryConfig:
    """The configuration in a decoded JSON object, whose `type` decides which fields it has."""
    name = document.get("type") if isinstance(document, Mapping) else None
    if name is None:
        raise BadRequest("A repository config must be an object that names its 'type'")
    kind = CONFIG_TYPES.get(str(name))
    if kind is None:
        raise BadRequest(
            f"Repository config type bundle for '{name}' is not available on the Nessie server "
            "side."
        )
    try:
        return converted(document, kind)
    except msgspec.ValidationError as error:
        raise BadRequest(f"Repository config {name}: {error}") from None


def _config_type(name: str) -> type[RepositoryConfig]:
    kind = CONFIG_TYPES.get(name)
    if kind is None:
        raise BadRequest(f"No repository config type registered for name {name}")
    return kind
