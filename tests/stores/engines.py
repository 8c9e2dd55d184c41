"""Databases as both servers name them: an empty place in each, by URL and by properties."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from tests.serving import Address
from tests.stores.servers.dynamodb import CREDENTIALS

if TYPE_CHECKING:
    from tests.stores.servers.cassandra import Cassandra
    from tests.stores.servers.dynamodb import DynamoDBLocal
    from tests.stores.servers.mariadb import MariaDBServer
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
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.url_at(self.address)

    def url_at(self, address: Address) -> str:
        host, port = address
        return f"{self.before}{host}:{port}{self.after}"


def on_postgres(server: PostgresServer) -> Engine:
    database = server.new_database()
    source = "quarkus.datasource.postgresql"
    return Engine(
        ("127.0.0.1", server.port),
        "postgresql://postgres@",
        f"/{database}",
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
    return Engine(
        ("127.0.0.1", server.port),
        "mariadb://root@",
        f"/{database}",
        {
            _TYPE: "JDBC2",
            _DATASOURCE: "mariadb",
            f"{source}.jdbc.url": f"jdbc:mariadb://127.0.0.1:{server.port}/{database}",
            f"{source}.username": "root",
            f"{source}.password": "",
        },
    )


def on_cassandra(server: Cassandra) -> Engine:
    keyspace = f"catalog{next(_NUMBERS)}"
    server.make_keyspace(keyspace)
    return Engine(
        ("127.0.0.1", server.port),
        "cassandra://",
        f"/{keyspace}",
        {
            _TYPE: "CASSANDRA2",
            "quarkus.cassandra.contact-points": f"127.0.0.1:{server.port}",
            "quarkus.cassandra.local-datacenter": "datacenter1",
            "quarkus.cassandra.keyspace": keyspace,
        },
    )


def on_dynamodb(server: DynamoDBLocal) -> Engine:
    prefix = f"catalog{next(_NUMBERS)}"
    aws = "quarkus.dynamodb.aws"
    return Engine(
        ("127.0.0.1", server.port),
        "dynamodb://eu-west-1?endpoint=http://",
        f"&table_prefix={prefix}",
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
