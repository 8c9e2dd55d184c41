"""PostgreSQL and CockroachDB, in the tables of Nessie's JDBC2 store."""

from typing import Final

from morag.backend.engines import Engine

POSTGRES: Final = Engine("morag.backend.postgres.backend:open_postgres", extra="postgres")
COCKROACH: Final = Engine("morag.backend.postgres.backend:open_cockroach", extra="postgres")
