"""Every setting, its default and its meaning: those of the kernel, and those of the server.

Flags, environment names, keys of `morag.toml` and the table in the docs are all made from these
fields (`configuring.py`).
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
    """Sizes are a writer's choice, not format: servers with different settings share a store.

    The index sizes are chosen for many small commits: a commit rewrites its incremental index, so
    a small one keeps commits small; a spill rewrites a stripe per touched key and the directory of
    stripes, so stripes grow with the square root of the repository.
    """

    repository_id: str = ""
    """Which of the repositories in the store; those with other ids are out of sight."""
    default_branch: str = "main"
    """The branch that a new repository starts with. An existing one keeps the branch it has."""

    namespace_validation: bool = True
    """Whether a key needs its namespace, and a namespace stays as long as it holds keys."""

    parents_per_commit: int = 20
    """How many ancestors a commit names; more make walks along the history skip more."""
    max_incremental_index_bytes: int = 6 * 1024
    """From which size on the index inside a commit spills into stripes."""
    min_index_segment_bytes: int = 2 * 1024
    """The smallest size that stripes aim at."""
    max_index_segment_bytes: int = 64 * 1024
    """Twice the largest size that stripes aim at."""
    max_inlined_stripes: int = 4
    """How many stripes a commit lists itself, before the list becomes an object of its own."""
    max_object_bytes: int = 16 * 1024 * 1024
    """The largest object that is stored; a commit that needs a larger one is refused."""

    cache_bytes: int = 256 * 1024 * 1024
    """How much memory the cache of stored objects may take; 0 keeps nothing."""

    previous_heads_count: int = 20
    """How many former heads a reference remembers, at the most."""
    previous_heads_seconds: int = 300
    """For how long a reference remembers them."""

    commit_timeout_ms: int = 5_000
    """After which time a change that keeps losing against others gives up."""
    commit_retries: int | None = None
    """After how many retries it gives up; None sets no number."""
    retry_sleep_lower_ms: int = 5
    """The shortest pause before a retry; it doubles. After a lost race the first comes at once."""
    retry_sleep_upper_ms: int = 25
    """The longest pause before a retry, which doubles; after a lost race it is 40 at the most."""
    retry_sleep_max_ms: int = 250
    """What neither pause grows beyond."""

    lane_batch: int = 256
    """How many waiting commits of one branch are written at once, at the most."""

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
    """How `morag serve` meets the network, and how much clients can make each process hold.

    Large request bodies are kept, unpacked and decoded, until they are answered: together they may
    take sixteen times `max_request_bytes`, those of one client half of that. Beyond that it is 503.
    """

    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 is every address of the machine."""
    port: int = 19120
    """The port to listen on; 0 takes a free one, which the ready line tells."""
    store: str = "rocksdb:./morag-data"
    """The URL of the store; passwords in it are never shown."""

    workers: int = 1
    """How many processes serve; more than one needs a store that processes can share."""
    threads: int = 16
    """How many threads per process do what has to wait for the disk or for another machine."""

    tls_cert: str = ""
    """A file with the certificate and those that vouch for it (PEM); turns TLS on."""
    tls_key: str = ""
    """The file with the certificate's key (PEM), if it is not in the same file."""
    cors_origins: tuple[str, ...] = ()
    """Which web pages of other origins may call the API, like https://ui.example.com; * is all."""

    allowed_hosts: tuple[str, ...] = ()
    """Host names to answer to, like lake.example.com; none is localhost on loopback, else all."""
    trusted_proxies: tuple[str, ...] = ()
    """Proxies whose X-Forwarded-For is believed: addresses, or networks such as 10.0.0.0/8."""

    access_log: Literal["off", "text", "json"] = "off"
    """Whether every request leaves a line on standard error, and in which form."""
    stack_traces: bool = False
    """Whether errors show clients where in the code they happened."""

    max_request_bytes: int = 32 * 1024 * 1024
    """The largest request body, unpacked; a larger one is answered by 413."""
    max_operations: int = 100_000
    """How many operations or keys one request may have; one with more is answered by 413."""
    max_unread_bytes: int = 256 * 1024 * 1024
    """How much of all answers may wait for slow readers; the client with most is cut off then."""
    max_head_bytes: int = 64 * 1024
    """The largest request line and headers together; larger ones are answered by 431."""
    max_connections: int = 1000
    """How many connections a process has; one more ends an idle one, or is answered by 503."""
    idle_timeout_seconds: float = 120.0
    """After which time a connection without a request is closed."""
    slow_client_seconds: float = 30.0
    """How long a client may take to send a request or to take an answer; large ones get more."""
    shutdown_seconds: float = 30.0
    """How long a server that was told to stop waits for what it had accepted."""
    gzip_min_bytes: int = 16 * 1024
    """From which size on answers are compressed, for clients that want it."""

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

# A slip of the keyboard is refused here; larger ones would fail later, or not be what was meant.
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
