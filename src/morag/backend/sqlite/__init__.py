"""SQLite: a file that the processes of one machine share."""

from typing import Final

from morag.backend.engines import Engine, Traits

ENGINE: Final = Engine(
    "morag.backend.sqlite.backend:open_sqlite",
    Traits(embedded=True, has_files=True),
)
