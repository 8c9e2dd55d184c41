"""The class `Client`: a repository on a server, with the methods that change branches."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from morag.client import decoders
from morag.client.contents import ClientContents
from morag.client.history import ClientHistory
from morag.client.json_http import Http
from morag.client.ref_lookup import RefLookup
from morag.client.references import ClientReferences
from morag.client.server_uris import parse_server_uri
from morag.errors import BadRequest
from morag.model.configs import ConfigUpdate, GarbageCollectorConfig, config_name
from morag.model.merging import MergeBehavior
from morag.model.meta import CommitMeta, check_client_meta
from morag.model.names import check_hash
from morag.model.operations import Put
from morag.model.results import CommitResult
from morag.rest.requests import (
    BranchBody,
    CommitBody,
    CommitMetaBody,
    MergeBody,
    MergeKeyBody,
    TransplantBody,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from ssl import SSLContext
    from types import TracebackType

    from morag.client.decoders import Configuration
    from morag.model.configs import RepositoryConfig
    from morag.model.merging import MergeKey, MergeResult
    from morag.model.operations import Operation
    from morag.model.references import Reference
    from morag.model.refspecs import RefSpec


class Client:
    """Branches, tags and commits on a server. Safe to use from many threads.

    `references`, `contents` and `history` read; `commit`, `merge` and `transplant` write. For a
    write without an expected hash, the client first reads the head of the branch and expects that:
    if other clients commit in between, the server applies the change on top of their commits.

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
        tls: SSLContext | None = None,
        proxy: str | None = None,
        connections: int = 16,
    ) -> None:
        """`uri` is like `http://127.0.0.1:19120/api/v2`; the path `/api/v2` may be left out.

        `timeout_seconds` limits the silence of the server, and the wait for one of the
        `connections`. `token` is sent as a bearer token, `headers` are sent with every request.
        `ca_file` has certificates of authorities that replace the system's; `tls` is a context with
        further options, such as a client certificate. `proxy` is like `http://host:port`, or empty
        for none; by default it is taken from `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`.
        """
        # Imported here, because `import morag.client` should not load urllib3.
        from morag.client.connections import Connections, Proxy, proxy_from_environment

        if timeout_seconds <= 0 or connections < 1:
            raise BadRequest("timeout_seconds must be above 0, and connections at least 1")
        if ca_file is not None and tls is not None:
            raise BadRequest("Pass ca_file or tls, not both: load the certificates into tls")
        server = parse_server_uri(uri)
        sent = dict(headers or {})
        if token is not None:
            sent["authorization"] = f"Bearer {token}"
        self.uri = f"{server.origin}{server.api}"
        self._connections = Connections(
            server,
            (tls or _tls(ca_file)) if server.is_secure else None,
            timeout_seconds,
            connections,
            proxy_from_environment(server) if proxy is None else Proxy(proxy) if proxy else None,
        )
        self._http = Http(server, self._connections, sent)
        self._refs = RefLookup(self._http)
        self.references = ClientReferences(self._http, self._refs)
        self.contents = ClientContents(self._http, self._refs)
        self.history = ClientHistory(self._http, self._refs)

    def config(self) -> Configuration:
        """The server's configuration: its API versions and its default branch."""
        return self._http.get(f"{self._http.api}/config", decoders.CONFIGURATION)

    @cached_property
    def default_branch(self) -> str:
        return self.config().default_branch

    def resolve(self, at: str | RefSpec) -> Reference:
        """The commit that a text such as `main~2` names now."""
        return self._refs.resolved(at).reference()

    def repository_config(self) -> RepositoryConfig | None:
        """The configuration of garbage collection; None if it was never set."""
        path = f"{self._http.api}/config/repository"
        found = self._http.get(
            path, decoders.CONFIGS, [("type", config_name(GarbageCollectorConfig))]
        ).configs
        return found[0] if found else None

    def set_repository_config(self, config: RepositoryConfig) -> RepositoryConfig | None:
        """Replace the whole configuration and return the previous one."""
        path = f"{self._http.api}/config/repository"
        return self._http.post(path, ConfigUpdate(config), decoders.CONFIG_UPDATED).previous

    def commit(
        self,
        branch: str,
        operations: Sequence[Operation],
        meta: CommitMeta | str,
        *,
        expected: str | None = None,
    ) -> CommitResult:
        """Change keys on a branch, all or nothing.

        The operations refer to the commit `expected`, by default the head. Later commits of other
        clients conflict only on keys that both change.
        """
        try:
            operations = tuple(operations)
        except TypeError:
            raise BadRequest("Operations must be a list of Put, Delete and Unchanged") from None
        for operation in operations:
            if isinstance(operation, Put) and operation.expected_content is not None:
                raise BadRequest(
                    "Put.expected_content cannot be checked through API v2: "
                    "pass the commit where the content was read as the expected one"
                )
        meta = CommitMeta(message=meta) if isinstance(meta, str) else meta
        check_client_meta(meta)
        path = self._verb(branch, expected, "commit")
        body = CommitBody.of(meta, operations)
        found = self._http.post(path, body, decoders.COMMITTED)
        added = {each.key: each.content_id for each in found.added_contents or ()}
        return CommitResult(found.target_branch.hash, added)

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
        """Apply everything that `source` changed since its common ancestor with the branch."""
        if meta is not None:
            check_client_meta(meta)
        found = self._refs.source(source)
        body = MergeBody(
            from_ref_name=found.name if isinstance(found, BranchBody) else "DETACHED",
            from_hash=found.hash,
            commit_meta=None if meta is None else CommitMetaBody.of(meta),
            key_merge_modes=tuple(map(MergeKeyBody.of, keys)) or None,
            default_key_merge_mode=default,
            is_dry_run=dry_run or None,
            is_return_conflict_as_result=conflicts_as_result or None,
        )
        return self._http.post(self._verb(into, expected, "merge"), body, decoders.MERGED)

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

        If it is a single commit, `meta` replaces its message; the API has no other fields. Several
        commits keep their messages.
        """
        hashes = tuple(hashes)
        if not hashes:
            raise BadRequest("No hashes given to transplant.")
        body = TransplantBody(
            from_ref_name=source,
            hashes_to_transplant=tuple(check_hash(hash) for hash in hashes),
            message=_message_alone(meta),
            key_merge_modes=tuple(map(MergeKeyBody.of, keys)) or None,
            default_key_merge_mode=default,
            is_dry_run=dry_run or None,
            is_return_conflict_as_result=conflicts_as_result or None,
        )
        path = self._verb(into, expected, "transplant")
        return self._http.post(path, body, decoders.MERGED)

    def close(self) -> None:
        """Close the connections. Requests in other threads finish."""
        self._connections.close()

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
        ref = self._refs.expected_path(branch, expected)
        return f"{self._http.api}/trees/{ref}/history/{verb}"


def _message_alone(meta: CommitMeta | None) -> str | None:
    if meta is None:
        return None
    check_client_meta(meta)
    if meta != CommitMeta(message=meta.message):
        raise BadRequest("A transplant through API v2 accepts a message, and no other metadata")
    return meta.message


def _tls(ca_file: str | None) -> SSLContext:
    # Imported here, because clients without TLS do not need it.
    import ssl

    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        raise BadRequest(f"The certificates in '{ca_file}' cannot be read: {error}") from None
