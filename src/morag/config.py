"""The settings of the kernel and of the server, with their defaults, meanings and bounds.

Flags, environment variables, keys of `morag.toml` (`config_sources.py`) and docs/settings.md are
generated from these fields.
"""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from typing import Final, Literal

from msgspec import Struct

from morag.errors import BadRequest
from morag.masking import masked
from morag.model.keys import check_unicode
from morag.model.names import check_new_reference_name


class Settings(Struct, frozen=True, kw_only=True):
    """Settings of the catalog. Servers with different settings can share a store.

    Index sizes are not part of the format: each writer chooses its own. The defaults suit many
    small commits. A commit rewrites its incremental index, so a small index keeps commits small. A
    spill rewrites one stripe per changed key and the list of all stripes, so stripes grow with the
    square root of the repository.
    """

    repository_id: str = ""
    """The id of the repository to open: a store can hold several, and each server sees one."""
    default_branch: str = "main"
    """The branch that a new repository starts with. An existing repository keeps its own."""

    namespace_validation: bool = True
    """Require that the namespace of a key exists, and that a namespace is empty when deleted."""

    parents_per_commit: int = 20
    """The number of ancestor ids stored in a commit; more ids make long history walks shorter."""
    max_incremental_index_bytes: int = 6 * 1024
    """The size from which the index inside a commit spills into stripes."""
    min_index_segment_bytes: int = 2 * 1024
    """The smallest target size of a stripe; the target grows with the repository."""
    max_index_segment_bytes: int = 64 * 1024
    """The largest size of a stripe: the target is at most half of it, and a stripe is cut if it is
    larger than twice the target."""
    max_inlined_stripes: int = 4
    """The number of stripes listed inside a commit; a longer list is a separate object."""
    max_object_bytes: int = 16 * 1024 * 1024
    """The largest object that is stored; a commit that needs a larger object is rejected."""

    cache_bytes: int = 128 * 1024 * 1024
    """The memory limit of the object cache; 0 turns the cache off."""

    previous_heads_count: int = 20
    """The maximum number of previous heads stored with a reference."""
    previous_heads_seconds: int = 300
    """How long a previous head stays stored with its reference."""

    commit_timeout_ms: int = 5_000
    """The time after which a commit that keeps losing to concurrent changes fails."""
    commit_retries: int | None = None
    """The number of retries after which such a commit fails; without it there is no limit."""
    retry_sleep_lower_ms: int = 5
    """The lower bound of the random pause before a retry, which doubles each time. The first retry
    after a lost race has no pause."""
    retry_sleep_upper_ms: int = 25
    """The upper bound of that pause, which doubles each time. After a lost race no pause is longer
    than 40 ms."""
    retry_sleep_max_ms: int = 250
    """The largest value of both bounds as they double."""

    lane_batch: int = 256
    """The maximum number of waiting commits to one branch that are written together."""

    def __post_init__(self) -> None:
        check_unicode("Setting repository_id", self.repository_id)
        try:
            check_new_reference_name(self.default_branch)
        except BadRequest as reason:
            raise BadRequest(f"Setting default_branch: {reason}") from None
        if not isinstance(self.namespace_validation, bool):
            raise BadRequest("Setting namespace_validation must be True or False")
        for name in KERNEL_BOUNDS:
            if name != "commit_retries" or self.commit_retries is not None:
                _check_number(name, getattr(self, name), KERNEL_BOUNDS)
        for small, large, factor in _ORDER:
            if factor * getattr(self, small) > getattr(self, large):
                least = factor * getattr(self, small)
                twice = "twice " if factor == 2 else ""
                raise BadRequest(
                    f"Setting {large} must be at least {least}, which is {twice}{small}"
                )


class ServerSettings(Struct, frozen=True, kw_only=True):
    """Settings of `morag serve`: network, logs, time-outs and limits for clients.

    The server holds large request bodies in memory, decompressed and decoded, until it has
    answered them. All of them together may take 16 times `max_request_bytes`, those of one client
    half of that. Further requests get 503.
    """

    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 means every address of the machine."""
    port: int = 19120
    """The port to listen on; with 0 the system picks one, and the ready line shows it."""
    store: str = "rocksdb:./morag-data"
    """The URL of the store; passwords in it are never shown."""

    workers: int = 1
    """The number of server processes; more than one needs a store that processes can share."""
    threads: int = 16
    """The number of threads per process for work that waits for a disk or another machine."""

    tls_cert: str = ""
    """A PEM file with the certificate and its chain; turns TLS on."""
    tls_key: str = ""
    """A PEM file with the private key of the certificate, if `tls_cert` does not contain it."""
    cors_origins: tuple[str, ...] = ()
    """Other origins whose web pages may call the API, like https://ui.example.com; * means all."""

    allowed_hosts: tuple[str, ...] = ()
    """Accepted Host headers, like lake.example.com. If this is not set, a server on a loopback
    address accepts loopback names only, and any other server accepts all."""
    trusted_proxies: tuple[str, ...] = ()
    """Proxies whose X-Forwarded-For is trusted: addresses, or networks such as 10.0.0.0/8."""

    access_log: Literal["off", "text", "json"] = "off"
    """Log every request to standard error, in this form."""
    stack_traces: bool = False
    """Include stack traces in error responses."""

    max_request_bytes: int = 32 * 1024 * 1024
    """The largest request body, decompressed; a larger one gets 413."""
    max_operations: int = 100_000
    """The maximum number of operations or keys in one request; more get 413."""
    max_unread_bytes: int = 256 * 1024 * 1024
    """Memory for responses not read yet; beyond it the client with most is disconnected."""
    max_head_bytes: int = 64 * 1024
    """The largest request line and headers together; larger ones get 431."""
    max_connections: int = 1000
    """The maximum number of connections per process; one more closes an idle one or gets 503."""
    idle_timeout_seconds: float = 120.0
    """The time after which an idle connection is closed."""
    slow_client_seconds: float = 30.0
    """How long a client may take to send a request or to read a response; large ones get more."""
    shutdown_seconds: float = 30.0
    """How long a stopping server waits for the requests that it has accepted."""
    gzip_min_bytes: int = 16 * 1024
    """The smallest response that is compressed, for clients that accept gzip."""

    def __post_init__(self) -> None:
        for name in ("host", "store", "tls_cert", "tls_key"):
            check_unicode(f"Setting {name}", getattr(self, name))
        for name in ("host", "store"):
            if not getattr(self, name):
                raise BadRequest(f"Setting {name} must not be empty")
        for name in SERVER_BOUNDS:
            _check_number(name, getattr(self, name), SERVER_BOUNDS)
        for name in SECONDS:
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 < value <= YEAR_SECONDS:
                raise BadRequest(
                    f"Setting {name} must be a number above 0, and at most {YEAR_SECONDS},"
                    f" not {value!r}"
                )
        if self.access_log not in ("off", "text", "json"):
            raise BadRequest(
                f"Setting access_log must be off, text or json, not {masked(repr(self.access_log))}"
            )
        if not isinstance(self.stack_traces, bool):
            raise BadRequest("Setting stack_traces must be True or False")
        if self.tls_key and not self.tls_cert:
            raise BadRequest("Setting tls_key needs tls_cert, the certificate it belongs to")
        for name in LISTS:
            if not isinstance(getattr(self, name), tuple):
                raise BadRequest(f"Setting {name} must be a list")
        for origin in self.cors_origins:
            if origin != "*" and ("://" not in origin or origin.endswith("/")):
                raise BadRequest(
                    f"Setting cors_origins must hold origins such as https://ui.example.com, or *,"
                    f" not {masked(repr(origin))}"
                )
        for host in self.allowed_hosts:
            if not _is_host(host):
                raise BadRequest(
                    f"Setting allowed_hosts must hold names such as lake.example.com or"
                    f" *.example.com, addresses, or *, without a port, not {masked(repr(host))}"
                )
        for proxy in self.trusted_proxies:
            if not _is_network(proxy):
                raise BadRequest(
                    f"Setting trusted_proxies must hold addresses such as 10.0.0.1, or networks"
                    f" such as 10.0.0.0/8, not {masked(repr(proxy))}"
                )


_MIB: Final = 1 << 20
_TIB: Final = 1 << 40
YEAR_SECONDS: Final = 365 * 24 * 60 * 60
_HOUR_MS: Final = 60 * 60 * 1000

# These bounds catch typing mistakes. Larger values would fail later, or surprise the user.
SERVER_BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "port": (0, 65_535),
    "workers": (1, 1024),
    "threads": (1, 1024),
    "max_request_bytes": (1, _TIB),
    "max_operations": (1, 1_000_000_000),
    "max_unread_bytes": (1, _TIB),
    "max_head_bytes": (1024, 64 * _MIB),
    "max_connections": (1, 1_000_000),
    "gzip_min_bytes": (0, _TIB),
}
LISTS: Final = ("cors_origins", "allowed_hosts", "trusted_proxies")
SECONDS: Final = ("idle_timeout_seconds", "slow_client_seconds", "shutdown_seconds")
KERNEL_BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "parents_per_commit": (1, 1024),
    "max_incremental_index_bytes": (1, 1024 * _MIB),
    "min_index_segment_bytes": (1, 1024 * _MIB),
    "max_index_segment_bytes": (2, 2048 * _MIB),
    "max_inlined_stripes": (0, 100_000),
    "max_object_bytes": (1, 2048 * _MIB),
    "cache_bytes": (0, 1024 * _TIB),
    "previous_heads_count": (0, 100_000),
    "previous_heads_seconds": (0, 10 * YEAR_SECONDS),
    "commit_timeout_ms": (0, 24 * _HOUR_MS),
    "commit_retries": (0, 1_000_000),
    "retry_sleep_lower_ms": (0, _HOUR_MS),
    "retry_sleep_upper_ms": (0, _HOUR_MS),
    "retry_sleep_max_ms": (0, _HOUR_MS),
    "lane_batch": (1, 100_000),
}
_HOST_NAME: Final = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?", re.IGNORECASE)
_ORDER: Final = (
    ("min_index_segment_bytes", "max_index_segment_bytes", 2),
    ("retry_sleep_lower_ms", "retry_sleep_upper_ms", 1),
    ("retry_sleep_upper_ms", "retry_sleep_max_ms", 1),
)


def _check_number(name: str, value: object, bounds: dict[str, tuple[int, int]]) -> None:
    least, most = bounds[name]
    if type(value) is not int or not least <= value <= most:
        raise BadRequest(
            f"Setting {name} must be a whole number from {least} to {most}, not {value!r}"
        )


def _is_host(text: str) -> bool:
    if text == "*" or _HOST_NAME.fullmatch(text):
        return True
    try:
        ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _is_network(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True
