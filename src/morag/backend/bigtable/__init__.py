"""Bigtable of Google Cloud, in the tables and cells of Nessie."""

from typing import Final

from morag.backend.engines import Engine

ENGINE: Final = Engine("morag.backend.bigtable.backend:open_bigtable", extra="bigtable")
