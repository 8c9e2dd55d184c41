"""The client's face: a repository on a server, its nouns, and the verbs that change branches."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from morag.client import wire
from morag.client.contents import ClientContents
from morag.client.history import ClientHistory
from morag.client.http import Http
from morag.client.places import Places
from morag.client.pool import Pool
from morag.client.references import ClientReferences
from morag.client.uris import parse_server_uri
from morag.errors import BadRequest
from morag.model.configs import ConfigUpdate, GarbageCollectorConfig, config_name
from morag.model.merging import MergeBehavior
from morag.model.meta import CommitMeta, check_client_meta
from morag.model.names import check_hash
from morag.model.operations import Put

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from ssl import SSLContext
    from types import TracebackType

    from morag.client.results import CommitResult, Configuration
    from morag.model.configs import RepositoryConfig
    from morag.model.merging import MergeKey, MergeResult
    from morag.model.operations import Operation
    from morag.model.references import Reference
    from morag.model.refspecs import RefSpec


class Client:
    """Branches, tags and commits on a server. Safe to use from many threads.

    `references`, `contents` and `history` read; `commit`, `merge` and `transplant` write. Where a
    write names no expected hash, the client first asks where the branch is and takes that one: if
    others commit in between, the server puts the change on top of theirs.

    A read that fails because the server closed an idle connection is repeated; a write never is.
    """

    def __init__(
        self,
        uri: str,
        *,
        timeout_seconds: float = 60.0,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        connections: int = 16,
    ) -> None:
        """`uri` is like `http://127.0.0.1:19120/api/v2`, where the path of the API may be missing.

        `timeout_seconds` is how long the server may be silent, or all `connections` busy. `token`
        is sent as a bearer token, `headers` with every request. `ca_file` has the certificates that
        a server with https is trusted by, instead of the system's.
        """
        if timeout_seconds <= 0 or connections < 1:
            raise BadRequest("A client needs time and at least one connection")
        server = parse_server_uri(uri)
        tls = _tls(ca_file) if server.is_secure else None
        sent = dict(headers or {})
        if token is not None:
            sent["authorization"] = f"Bearer {token}"
        self.uri = f"{server.origin}{server.api}"
        self._pool = Pool(server, tls, timeout_seconds, connections)
        self._http = Http(server, self._pool, sent)
        self._places = Places(self._http)
        self.references = ClientReferences(self._http, self._places)
        self.contents = ClientContents(self._http, self._places)
        self.history = ClientHistory(self._http, self._places)

    def config(self) -> Configuration:
        """What the server says of itself: versions, and its default branch."""
        return self._http.get(f"{self._http.api}/config", wire.CONFIGURATION)

    @cached_property
    def default_branch(self) -> str:
        return self.config().default_branch

    def resolve(self, at: str | RefSpec) -> Reference:
        """The place that a text such as `main~2` means now."""
        return self._places.resolved(at).reference()

    def repository_config(self) -> RepositoryConfig | None:
        """The configuration that garbage collection goes by, if one was ever set."""
        path = f"{self._http.api}/config/repository"
        found = self._http.get(
            path, wire.CONFIGS, [("type", config_name(GarbageCollectorConfig))]
        ).configs
        return found[0] if found else None

    def set_repository_config(self, config: RepositoryConfig) -> RepositoryConfig | None:
        """Replace the configuration as a whole; returns the one before."""
        path = f"{self._http.api}/config/repository"
        return self._http.post(path, ConfigUpdate(config), wire.CONFIG_UPDATED).previous

    def commit(
        self,
        branch: str,
        operations: Sequence[Operation],
        meta: CommitMeta | str,
        *,
        expected: str | None = None,
    ) -> CommitResult:
        """Change keys on a branch, all or nothing.

        The operations are understood as of the commit `expected`, by default the head. If others
        have committed since, that only matters for the keys they changed.
        """
        try:
            operations = tuple(operations)
        except TypeError:
            raise BadRequest("Operations must be a list of Put, Delete and Unchanged") from None
        for operation in operations:
            if isinstance(operation, Put) and operation.expected_content is not None:
                raise BadRequest(
                    "Put.expected_content cannot be checked through API v2: "
                    "name the commit where the content was seen as the expected one"
                )
        meta = CommitMeta(message=meta) if isinstance(meta, str) else meta
        wish = wire.CommitWish(_client_meta(meta), operations)
        return self._http.post(
            self._verb(branch, expected, "commit"), wish, wire.COMMITTED
        ).result()

    def merge(
        self,
        source: str | RefSpec,
        into: str,
        *,
        meta: CommitMeta | None = None,
        expected: str | None = None,
        keys: Sequence[MergeKey] = (),
        default: MergeBehavior = MergeBehavior.NORMAL,
        dry_run: bool = False,
        conflicts_as_result: bool = False,
    ) -> MergeResult:
        """Bring everything that `source` changed since it parted from the branch."""
        sent_meta = None if meta is None else _client_meta(meta)
        found = self._places.source(source)
        wish = wire.MergeWish(
            from_ref_name=found.name or found.type,
            from_hash=found.hash,
            commit_meta=sent_meta,
            key_merge_modes=tuple(keys),
            default_key_merge_mode=default,
            is_dry_run=dry_run,
            is_return_conflict_as_result=conflicts_as_result,
        )
        return self._http.post(self._verb(into, expected, "merge"), wish, wire.MERGED).result()

    def transplant(
        self,
        hashes: Sequence[str],
        into: str,
        *,
        source: str = "DETACHED",
        meta: CommitMeta | None = None,
        expected: str | None = None,
        keys: Sequence[MergeKey] = (),
        default: MergeBehavior = MergeBehavior.NORMAL,
        dry_run: bool = False,
        conflicts_as_result: bool = False,
    ) -> MergeResult:
        """Apply consecutive commits, oldest first, to a branch.

        `meta` overrides what a single commit says, of which the API carries the message only;
        several keep their own words.
        """
        hashes = tuple(hashes)
        if not hashes:
            raise BadRequest("No hashes given to transplant.")
        wish = wire.TransplantWish(
            from_ref_name=source,
            hashes_to_transplant=tuple(check_hash(hash) for hash in hashes),
            message=_message_alone(meta),
            key_merge_modes=tuple(keys),
            default_key_merge_mode=default,
            is_dry_run=dry_run,
            is_return_conflict_as_result=conflicts_as_result,
        )
        path = self._verb(into, expected, "transplant")
        return self._http.post(path, wish, wire.MERGED).result()

    def close(self) -> None:
        """Let go of the connections. What is under way in other threads finishes."""
        self._pool.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.uri!r})"

    def _verb(self, branch: str, expected: str | None, verb: str) -> str:
        where = self._places.expected_path(branch, expected)
        return f"{self._http.api}/trees/{where}/history/{verb}"


def _client_meta(meta: CommitMeta) -> wire.ClientMeta:
    check_client_meta(meta)
    return wire.ClientMeta.of(meta)


def _message_alone(meta: CommitMeta | None) -> str | None:
    if meta is None:
        return None
    check_client_meta(meta)
    if meta != CommitMeta(message=meta.message):
        raise BadRequest("A transplant through the API can be given a message, and no more")
    return meta.message


def _tls(ca_file: str | None) -> SSLContext:
    # Not at the top: most clients of a server on the same machine do without.
    import ssl

    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        raise BadRequest(f"The certificates in '{ca_file}' cannot be read: {error}") from None
