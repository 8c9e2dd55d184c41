"""Connects to a Bigtable instance, and creates or checks its tables."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, Final

import grpc
from google.api_core.exceptions import AlreadyExists, Forbidden, NotFound, Unauthorized
from google.auth.exceptions import DefaultCredentialsError
from google.cloud.bigtable_admin_v2 import BigtableTableAdminClient
from google.cloud.bigtable_admin_v2.services.bigtable_table_admin.transports import (
    BigtableTableAdminGrpcTransport,
)
from google.cloud.bigtable_admin_v2.types import ColumnFamily, Table
from google.cloud.bigtable_v2 import BigtableClient
from google.cloud.bigtable_v2.services.bigtable.transports import BigtableGrpcTransport

from morag.backend.bigtable.calls import BigtableCalls
from morag.backend.bigtable.errors import ERRORS
from morag.backend.bigtable.records import FAMILIES, LOG
from morag.errors import RepositoryCorrupt, StoreCannotWrite, StoreUnreachable, StoreUrlInvalid

if TYPE_CHECKING:
    from morag.backend.urls import StoreUrl

_ADDRESS: Final = re.compile(r"//([^/@:]+)/([^/@:]+)/?")
_OPTIONS: Final = frozenset(
    {"app_profile", "table_prefix", "emulator", "connect_timeout_seconds", "timeout_seconds"}
)
_CHANNEL: Final = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),  # The default is two minutes.
]


def open_calls(url: StoreUrl) -> tuple[BigtableCalls, bool]:
    """Calls on the tables of the URL's instance, and whether the ref-log is among them."""
    url.check_options(_OPTIONS)
    match = _ADDRESS.fullmatch(url.rest)
    if match is None:
        example = "bigtable://PROJECT/INSTANCE"
        raise StoreUrlInvalid(
            f"'{url}' names no project or no instance; write for example {example}"
        )
    instance = f"projects/{match[1]}/instances/{match[2]}"
    prefix = url.options.get("table_prefix", "")
    names = {table: f"{prefix}_{table}" if prefix else table for table in FAMILIES}
    seconds = url.number("timeout_seconds", 10.0)
    transport = BigtableGrpcTransport(channel=_channel(url, BigtableGrpcTransport))
    calls = BigtableCalls(
        BigtableClient(transport=transport),
        {table: f"{instance}/tables/{name}" for table, name in names.items()},
        app_profile=url.options.get("app_profile", ""),
        timeout_seconds=seconds,
        address=f"'{url}'",
    )
    try:
        with closing(_channel(url, BigtableTableAdminGrpcTransport)) as channel:
            admin = BigtableTableAdminClient(
                transport=BigtableTableAdminGrpcTransport(channel=channel)
            )
            tables = _Tables(url, calls, admin, instance, seconds)
            there = {table: tables.check(table, name) for table, name in names.items()}
            # Created after all were checked: a database of another program is not changed.
            there = {table: there[table] or tables.make(table, names[table]) for table in names}
    except ERRORS.raised as error:
        calls.close()
        raise ERRORS.translate(error, f"'{url}'") from error
    except BaseException:
        calls.close()
        raise
    return calls, there[LOG]


class _Tables:
    """Checks the tables, and creates those that are missing."""

    def __init__(
        self,
        url: StoreUrl,
        calls: BigtableCalls,
        admin: BigtableTableAdminClient,
        instance: str,
        seconds: float,
    ) -> None:
        self._url, self._calls, self._admin = url, calls, admin
        self._instance, self._seconds = instance, seconds

    def check(self, table: str, name: str) -> bool:
        """Whether the table exists; a table that cannot be used is refused."""
        path = f"{self._instance}/tables/{name}"
        try:
            found = self._admin.get_table(name=path, retry=None, timeout=self._seconds)
        except NotFound:
            return False
        except (Forbidden, Unauthorized):
            # An account without this right may still use tables that exist.
            return self._can_be_read(table)
        if FAMILIES[table] not in found.column_families:
            raise StoreUrlInvalid(
                f"The table {name} in '{self._url}' has no column family '{FAMILIES[table]}'; set"
                " table_prefix, or restore the table"
            )
        return True

    def make(self, table: str, name: str) -> bool:
        """Whether the table exists now. Only the log may be missing, and only for a reader."""
        if self._url.read_only:
            if table == LOG:  # Nessie does not create it.
                return False
            raise self._missing(table, name)
        wanted = Table(column_families={FAMILIES[table]: ColumnFamily()})
        try:
            self._admin.create_table(
                parent=self._instance, table_id=name, table=wanted, timeout=self._seconds
            )
        except AlreadyExists:  # Another server was faster.
            return self.check(table, name)
        except NotFound as error:
            raise StoreUrlInvalid(
                f"'{self._url}' names an instance that does not exist; create it first"
            ) from error
        except (Forbidden, Unauthorized) as error:
            raise self._missing(table, name) from error
        return True

    def _can_be_read(self, table: str) -> bool:
        try:
            self._calls.read(table, [b"-"])
        except RepositoryCorrupt:
            return False
        except StoreCannotWrite as error:
            raise StoreUrlInvalid(
                f"Bigtable denies this account the use of '{self._url}'; grant it the role"
                " bigtable.user"
            ) from error
        return True

    def _missing(self, table: str, name: str) -> StoreUrlInvalid:
        return StoreUrlInvalid(
            f"There is no table {name} in '{self._url}'; create it, with the column family"
            f" '{FAMILIES[table]}', or grant the role bigtable.admin"
        )


def _channel(
    url: StoreUrl, service: type[BigtableGrpcTransport | BigtableTableAdminGrpcTransport]
) -> grpc.Channel:
    emulator = url.options.get("emulator")
    try:
        if emulator is not None:
            channel = grpc.insecure_channel(emulator, _CHANNEL)
        else:
            channel = service.create_channel(service.DEFAULT_HOST, options=_CHANNEL)
    except DefaultCredentialsError as error:
        raise StoreUrlInvalid(
            f"'{url}' needs an account of Google Cloud; set GOOGLE_APPLICATION_CREDENTIALS"
        ) from error
    try:
        seconds = url.number("connect_timeout_seconds", 10.0)
        grpc.channel_ready_future(channel).result(seconds)
    except grpc.FutureTimeoutError as error:
        channel.close()
        raise StoreUnreachable(f"Bigtable at '{url}' does not answer") from error
    return channel
