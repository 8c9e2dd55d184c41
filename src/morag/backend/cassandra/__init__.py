"""Apache Cassandra and ScyllaDB, in the tables of Nessie."""

from typing import Final

from morag.backend.engines import Engine

ENGINE: Final = Engine("morag.backend.cassandra.backend:open_cassandra", extra="cassandra")
