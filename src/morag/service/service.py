"""Everything that the APIs can ask for, by noun."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.persist.ids import NO_ANCESTOR
from morag.service.changes import Changes
from morag.service.configs import Configs
from morag.service.contents import Contents
from morag.service.listings import Listings
from morag.service.namespaces import Namespaces
from morag.service.places import Places
from morag.service.references import References
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.versions.repository import Repository

SPEC_VERSION: Final = "2.2.0"

_WORLD: Final = World()


class ServerConfig(Struct, frozen=True, kw_only=True, rename="camel"):
    """What clients ask for first."""

    default_branch: str
    min_supported_api_version: int = 1
    max_supported_api_version: int = 2
    actual_api_version: int = 2
    spec_version: str | None
    no_ancestor_hash: str
    repository_creation_timestamp: str
    oldest_possible_commit_timestamp: str

    @classmethod
    def of(cls, repository: Repository) -> ServerConfig:
        """The spec promises that namespaces are checked: without the check it is not claimed."""
        description = repository.describe()
        return cls(
            default_branch=repository.default_branch,
            spec_version=SPEC_VERSION if repository.settings.namespace_validation else None,
            no_ancestor_hash=NO_ANCESTOR.hex(),
            repository_creation_timestamp=description.repository_created_time,
            oldest_possible_commit_timestamp=description.oldest_possible_commit_time,
        )


class Service:
    def __init__(
        self, repository: Repository, cpu_seconds: Callable[[], float] = _WORLD.cpu_seconds
    ) -> None:
        places = Places(repository)
        self.default_branch = repository.default_branch
        self.start = repository.start
        self.references = References(repository, places, cpu_seconds)
        self.listings = Listings(repository, places, cpu_seconds)
        self.contents = Contents(repository, places)
        self.changes = Changes(repository, places)
        self.namespaces = Namespaces(repository, places)
        self.configs = Configs(repository)
        self.config = ServerConfig.of(repository)
