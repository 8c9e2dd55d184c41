"""The tables and branches that a server has before a measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.nessie.load_clients import NAMESPACE, Committer

if TYPE_CHECKING:
    from bench.nessie.servers import Server

TABLES: Final = 256


def committers(server: Server, branch: str, clients: int) -> list[Committer]:
    main = server.ask("GET", "trees/main")["reference"]
    server.ask("POST", f"trees?name={branch}&type=BRANCH", main)
    return [Committer(server.address, branch, n, main["hash"]) for n in range(clients)]


def commits_on(server: Server, branch: str) -> int:
    reference = server.ask("GET", f"trees/{branch}?fetch=ALL")["reference"]
    return int(reference["metadata"]["numTotalCommits"])


def make_tables(server: Server) -> None:
    head = server.ask("GET", "trees/main")["reference"]["hash"]
    server.ask("POST", f"trees/main@{head}/history/commit", _first_commit())


def table_to_read(number: int) -> str:
    return f"{NAMESPACE}.read-{number:03}"


def _first_commit() -> object:
    puts: list[object] = [
        {
            "type": "PUT",
            "key": {"elements": [NAMESPACE]},
            "content": {"type": "NAMESPACE", "elements": [NAMESPACE]},
        }
    ]
    for number in range(TABLES):
        name = table_to_read(number)
        puts.append(
            {
                "type": "PUT",
                "key": {"elements": name.split(".")},
                "content": {
                    "type": "ICEBERG_TABLE",
                    "metadataLocation": f"s3://lake/warehouse/{name}/metadata/v1.metadata.json",
                    "snapshotId": number,
                    "schemaId": 0,
                    "specId": 0,
                    "sortOrderId": 0,
                },
            }
        )
    return {"commitMeta": {"message": "tables to read"}, "operations": puts}
