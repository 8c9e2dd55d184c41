"""DynamoDB of AWS, in the tables and items of Nessie."""

from typing import Final

from morag.backend.engines import Engine

ENGINE: Final = Engine("morag.backend.dynamodb.backend:open_dynamodb", extra="dynamodb")
