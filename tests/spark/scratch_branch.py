"""A branch that one test uses alone, with shortcuts for commits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from morag import ContentKey, IcebergTable, Put

if TYPE_CHECKING:
    from morag.client import Client
    from morag.model.results import LogEntry


class Branch:
    """A branch with the name of its test. It has no commits at first."""

    def __init__(self, client: Client, url: str, test: str) -> None:
        self.client = client
        self.name = re.sub(r"\W+", "_", test)
        self.options = {"uri": url, "ref": self.name}
        client.references.create_branch(self.name, None)

    def commit(self, *messages: str) -> list[str]:
        """A commit for each message, each on a table of that name; returns their hashes."""
        return [
            self.client.commit(self.name, [Put(ContentKey.of(message), table(n))], message).hash
            for n, message in enumerate(messages)
        ]

    @property
    def head(self) -> str:
        return self.client.references.get(self.name).hash

    def log(self) -> list[LogEntry]:
        """Oldest first."""
        log = list(self.client.history.log(self.name, with_operations=True))
        return log[::-1]

    def messages(self) -> list[str]:
        return [entry.meta.message for entry in self.log()]


def table(n: int) -> IcebergTable:
    return IcebergTable(
        metadata_location=f"s3://lake/{n}.json",
        snapshot_id=n,
        schema_id=0,
        spec_id=0,
        sort_order_id=0,
    )
