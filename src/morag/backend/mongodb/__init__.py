"""MongoDB, in the collections and documents of Nessie."""

from typing import Final

from morag.backend.engines import Engine

ENGINE: Final = Engine("morag.backend.mongodb.backend:open_mongodb", extra="mongodb")
