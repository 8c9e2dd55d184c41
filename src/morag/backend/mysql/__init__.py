"""MariaDB and MySQL, in the tables of Nessie's JDBC2 store."""

from typing import Final

from morag.backend.engines import Engine

ENGINE: Final = Engine("morag.backend.mysql.backend:open_mysql", extra="mysql")
