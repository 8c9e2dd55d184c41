"""Databases as both servers name them: an empty place in each, by URL and by properties."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tests.serving import Address
from tests.stores.servers.dynamodb import CREDENTIALS

if TYPE_CHECKING:
    from tests.stores.servers.bigtable import Bigtable
    from tests.stores.servers.cassandra import Cassandra
    from tests.stores.servers.dynamodb import DynamoDBLocal
    from tests.stores.servers.mariadb import MariaDBServer
    from tests.stores.servers.mongodb import MongoImitation
    from tests.stores.servers.postgres import PostgresServer

_TYPE: Final = "nessie.version.store.type"
_DATASOURCE: Final = "nessie.version.store.persist.jdbc.datasource"
_NUMBERS: Final = count()


class Engine(Struct, frozen=True):
    """`scheme://ADDRESS/rest`, so that a proxy can stand in between."""

    address: Address
    before: str
    after: str
    original: Mapping[str, object]
    environment: Mapping[str, str]

    @property
    def url(self) -> str:
        return self.url_at(self.address)

    def url_at(self, address: Address, *options: str) -> str:
        host, port = address
        place = f"{self.before}{host}:{port}{self.after}"
        if not options:
            return place
        return f"{place}{'&' if '?' in place else '?'}{'&'.join(options)}"


def on_postgres(server: PostgresServer) -> Engine:
    database = server.new_database()
    source = "quarkus.datasource.postgresql"
    return _engine(
        server.port,
        server.url(database),
        {
            _TYPE: "JDBC2",
            _DATASOURCE: "postgresql",
            f"{source}.jdbc.url": f"jdbc:postgresql://127.0.0.1:{server.port}/{database}",
            f"{source}.username": "postgres",
            f"{source}.password": "none",
        },
    )


def on_mariadb(server: MariaDBServer) -> Engine:
    database = server.new_database()
    source = "quarkus.datasource.mariadb"
    return _engine(
        server.port,
        server.url(database),
        {
            _TYPE: "JDBC2",
            _DATASOURCE: "mariadb",
            f"{source}.jdbc.url": f"jdbc:mariadb://127.0.0.1:{server.port}/{database}",
            f"{source}.username": "root",
            f"{source}.password": "",
        },
    )


def on_cassandra(server: Cassandra) -> Engine:
    keyspace = _name()
    server.make_keyspace(keyspace)
    return _engine(
        server.port,
        server.url(keyspace),
        {
            _TYPE: "CASSANDRA2",
            "quarkus.cassandra.contact-points": f"127.0.0.1:{server.port}",
            "quarkus.cassandra.local-datacenter": "datacenter1",
            "quarkus.cassandra.keyspace": keyspace,
        },
    )


def on_dynamodb(server: DynamoDBLocal) -> Engine:
    prefix = _name()
    aws = "quarkus.dynamodb.aws"
    return _engine(
        server.port,
        server.url(prefix),
        {
            _TYPE: "DYNAMODB2",
            "nessie.version.store.persist.dynamodb.table-prefix": prefix,
            "quarkus.dynamodb.endpoint-override": f"http://127.0.0.1:{server.port}",
            f"{aws}.region": "eu-west-1",
            f"{aws}.credentials.type": "STATIC",
            f"{aws}.credentials.static-provider.access-key-id": CREDENTIALS["AWS_ACCESS_KEY_ID"],
            f"{aws}.credentials.static-provider.secret-access-key": CREDENTIALS[
                "AWS_SECRET_ACCESS_KEY"
            ],
        },
        CREDENTIALS,
    )


def on_mongodb(server: MongoImitation) -> Engine:
    """The original is not run on it, so there are no properties."""
    return _engine(server.port, server.url(_name()), {})


def on_bigtable(server: Bigtable) -> Engine:
    """The original is not run on it, so there are no properties."""
    return _engine(server.port, server.url(_name()), {})


def _engine(
    port: int,
    url: str,
    original: Mapping[str, object],
    environment: Mapping[str, str] | None = None,
) -> Engine:
    before, after = url.split(f"127.0.0.1:{port}")
    return Engine(("127.0.0.1", port), before, after, original, environment or {})


def _name() -> str:
    return f"catalog{next(_NUMBERS)}"
