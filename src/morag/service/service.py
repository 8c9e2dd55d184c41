"""All services of one repository, one for each noun of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.model.names import NO_ANCESTOR_HASH
from morag.rest.responses import ServerConfig
from morag.service.changes import Changes
from morag.service.configs import Configs
from morag.service.contents import Contents
from morag.service.listings import Listings
from morag.service.namespaces import Namespaces
from morag.service.ref_resolution import RefResolution
from morag.service.references import References
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.versions.repository import Repository
    from morag.versions.tickets import Request, Spawn, Ticket

SPEC_VERSION: Final = "2.2.0"

_WORLD: Final = World()


class Service:
    def __init__(
        self, repository: Repository, cpu_seconds: Callable[[], float] = _WORLD.cpu_seconds
    ) -> None:
        self._repository = repository
        self.look_ups = repository.look_ups
        self.refs = refs = RefResolution(repository)
        self.default_branch = repository.default_branch
        self.references = References(repository, refs, cpu_seconds)
        self.listings = Listings(repository, refs, cpu_seconds)
        self.contents = Contents(repository, refs)
        self.changes = Changes(repository, refs)
        self.namespaces = Namespaces(repository, refs)
        self.configs = Configs(repository)
        self.config = _config_of(repository)

    def start_in_lane(
        self, request: Request, spawn: Spawn, finished: Callable[[Ticket], None]
    ) -> None:
        """Carry out a change that `changes` has made ready, without waiting for it."""
        self._repository.start(request, spawn, finished)


def _config_of(repository: Repository) -> ServerConfig:
    """The spec version implies the check of namespaces, so it is left out without that check."""
    description = repository.describe()
    return ServerConfig(
        default_branch=repository.default_branch,
        max_supported_api_version=2,
        actual_api_version=2,
        spec_version=SPEC_VERSION if repository.settings.namespace_validation else None,
        no_ancestor_hash=NO_ANCESTOR_HASH,
        repository_creation_timestamp=description.repository_created_time,
        oldest_possible_commit_timestamp=description.oldest_possible_commit_time,
    )
