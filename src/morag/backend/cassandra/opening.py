"""Connects to a keyspace of Cassandra or ScyllaDB, and creates or checks its tables."""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    ProtocolVersion,
    Unauthorized,
    UnresolvableContactPoints,
)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.metadata import protect_name
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    TokenAwarePolicy,
)
from cassandra.query import tuple_factory

from morag.backend.cassandra.calls import (
    AGAIN,
    ONCE,
    AgainPolicy,
    CassandraSession,
    OncePolicy,
)
from morag.backend.cassandra.errors import ERRORS, causes
from morag.backend.cassandra.statements import LOG, TABLES
from morag.errors import StoreUrlInvalid

if TYPE_CHECKING:
    from cassandra.cluster import Session

    from morag.backend.urls import StoreUrl

_PORT: Final = 9042
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::(\d+))?")
_RECONNECT_SECONDS: Final = (0.25, 10.0)
_MURMUR3: Final = "Murmur3Partitioner"
_OPTIONS: Final = frozenset({"dc", "connect_timeout_seconds", "timeout_seconds", "tls", "tls_ca"})


def open_session(url: StoreUrl) -> tuple[CassandraSession, bool]:
    """A session on the tables of the URL's keyspace, and whether the ref-log is among them."""
    url.check_options(_OPTIONS)
    cluster, keyspace = _cluster(url)
    try:
        session = cluster.connect()
        has_log = _prepare_tables(url, session, keyspace)
    except ERRORS.raised as error:
        cluster.shutdown()
        if any(isinstance(cause, AuthenticationFailed) for cause in causes(error)):
            raise StoreUrlInvalid(
                f"Cassandra refuses the user or the password of '{url}'; correct them"
            ) from error
        if any(isinstance(cause, Unauthorized) for cause in causes(error)):
            raise StoreUrlInvalid(
                f"Cassandra does not allow the user of '{url}' to create tables; grant CREATE on"
                f" the keyspace, or SELECT and MODIFY if the tables are there ({error})"
            ) from error
        centres = sorted({str(host.datacenter) for host in cluster.metadata.all_hosts()})
        dc = url.options.get("dc", "")
        if dc and "None" not in centres and dc not in centres:
            raise StoreUrlInvalid(
                f"'{url}' names no data centre of the cluster; it has: {', '.join(centres)}"
            ) from error
        raise ERRORS.translate(error, f"'{url}'") from error
    except BaseException:
        cluster.shutdown()
        raise
    return CassandraSession(session, keyspace, f"'{url}'"), has_log


def _cluster(url: StoreUrl) -> tuple[Cluster, str]:
    address, _, keyspace = url.rest.removeprefix("//").partition("/")
    user, _, hosts = address.rpartition("@")
    if not hosts or not keyspace or "/" in keyspace:
        example = f"{url.scheme}://HOST:9042/KEYSPACE?dc=DATACENTER"
        raise StoreUrlInvalid(f"'{url}' names no host or no keyspace; write for example {example}")
    points = [_point(url, host) for host in hosts.split(",")]
    name, _, password = user.partition(":")
    timeout, connect_timeout = (
        url.number(option, 5.0) for option in ("timeout_seconds", "connect_timeout_seconds")
    )
    profiles = {
        how: ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(
                DCAwareRoundRobinPolicy(url.options.get("dc", ""))
            ),
            retry_policy=policy,
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
            serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
            request_timeout=timeout,
            row_factory=tuple_factory,
        )
        for how, policy in (
            (EXEC_PROFILE_DEFAULT, OncePolicy()),
            (ONCE, OncePolicy()),
            (AGAIN, AgainPolicy()),
        )
    }
    try:
        cluster = Cluster(
            points,
            port=points[0][1],
            auth_provider=PlainTextAuthProvider(unquote(name), unquote(password)) if user else None,
            ssl_context=_tls(url),
            protocol_version=ProtocolVersion.V4,  # The newest that ScyllaDB speaks, too.
            execution_profiles=profiles,
            # Without a limit: by default the driver gives up on a node after some time.
            reconnection_policy=ExponentialReconnectionPolicy(*_RECONNECT_SECONDS, None),
            connect_timeout=connect_timeout,
            control_connection_timeout=connect_timeout,
        )
    except UnresolvableContactPoints as error:
        raise StoreUrlInvalid(f"No host of '{url}' is known here; correct the name") from error
    return cluster, unquote(keyspace)


def _prepare_tables(url: StoreUrl, session: Session, keyspace: str) -> bool:
    """Check the tables and create missing ones; return whether there is a log."""
    metadata = session.cluster.metadata
    if not str(metadata.partitioner).endswith(_MURMUR3):
        raise StoreUrlInvalid(f"The cluster of '{url}' has another partitioner than {_MURMUR3}")
    if keyspace not in metadata.keyspaces:
        tablets = " AND tablets = {'enabled': false}" if url.scheme == "scylla" else ""
        raise StoreUrlInvalid(
            f"'{url}' names a keyspace that does not exist; create it first, for example: CREATE"
            f" KEYSPACE {keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy',"
            f" 'DATACENTER': 3}}{tablets}"
        )
    there = dict(
        metadata.keyspaces[keyspace].tables
    )  # Other servers may be creating tables right now.
    for name in TABLES.keys() & there.keys():
        difference = TABLES[name].difference(there[name])
        if difference:
            raise StoreUrlInvalid(
                f"The table {name} in '{url}' is not as it should be: {difference}. Name another"
                " keyspace, or restore the table"
            )
    if not url.read_only:
        for name in TABLES.keys() - there.keys():
            session.execute(TABLES[name].cql(f"{protect_name(keyspace)}.{name}"))
        return True
    missing = TABLES.keys() - there.keys()
    if missing - {LOG}:
        raise StoreUrlInvalid(f"There is no store in '{url}': it has no table {min(missing)}")
    return not missing


def _point(url: StoreUrl, host: str) -> tuple[str, int]:
    match = _HOST.fullmatch(host)
    if match is None:
        raise StoreUrlInvalid(f"'{url}' names a host without a name, or a port that is no number")
    return match[1].strip("[]"), int(match[2] or _PORT)


def _tls(url: StoreUrl) -> ssl.SSLContext | None:
    if not url.flag("tls", default="tls_ca" in url.options):
        return None
    try:
        return ssl.create_default_context(cafile=url.options.get("tls_ca"))
    except OSError as error:
        raise StoreUrlInvalid(f"Option 'tls_ca' of '{url}' names no certificates") from error
