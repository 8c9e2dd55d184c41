"""docs/spark.md names every option, and its commands and examples work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import morag.spark
from morag.cli import spark as commands
from morag.cli.main import Parser
from morag.spark.opening import OPTIONS
from morag.spark.source import sink, stream
from morag.spark.source.options import TABLE_OPTIONS
from tests.spark.scratch_branch import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.spark.scratch_branch import Branch

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # PySpark leaves sockets open.

_TEXT: Final = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
_EXAMPLES: Final = re.findall(r"```python\n(.*?)```", _TEXT, re.DOTALL)
_COMMANDS: Final = re.findall(r"^    morag (spark (?:\\\n|[^\n])*)", _TEXT, re.MULTILINE)

_NOT_RUN: Final = ("session(", "morag.spark.branch(")
"""Examples that start another session, or need Iceberg's jar, which tests/interop has."""


@pytest.mark.parametrize(
    "option",
    sorted(
        OPTIONS.union(*TABLE_OPTIONS.values(), stream._OPTIONS, sink._OPTIONS - sink._SPARK_OPTIONS)
        | {"partitions"}
    ),
)
def test_every_option_is_documented(option: str) -> None:
    assert f"`{option}`" in _TEXT


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_command_can_be_parsed(command: str) -> None:
    parser = Parser()
    commands.configure(parser, explain=False)
    words = shlex.split(command.replace("\\\n", ""), comments=True)
    assert callable(parser.parse(words[1:]).job)


def test_every_example_runs(spark: SparkSession, branch: Branch, tmp_path: Path) -> None:
    branch.client.commit("main", [morag.Put(morag.ContentKey.of("orders"), table(1))], "first")
    (tmp_path / "token").write_text("hush")
    replacements = {
        "http://127.0.0.1:19120": branch.options["uri"],
        "/run/secrets/token": str(tmp_path / "token"),
        "/data/checkpoint": str(tmp_path / "checkpoint"),
    }
    rows = spark.sql("SELECT array('made') AS key, 's3://m' AS metadata_location")
    known: dict[str, Any] = {"spark": spark, "rows": rows}
    queries: dict[str, StreamingQuery] = {}
    ran = 0
    for example in _EXAMPLES:
        if any(each in example for each in _NOT_RUN):
            continue
        for written, real in replacements.items():
            example = example.replace(written, real)
        exec(compile(example, "docs/spark.md", "exec"), known)
        queries |= {query.id: query for query in spark.streams.active}
        ran += 1
    assert ran == len(_EXAMPLES) - len(_NOT_RUN)
    try:
        (query,) = queries.values()
        query.processAllAvailable()  # This raises the error of a query that has failed.
        query.stop()
        messages = [row.message for row in spark.table("commits").collect()]
    finally:
        spark.sql("DROP TABLE commits")
    committed = [entry.meta.message for entry in branch.client.history.log("main")]
    assert sorted(messages) == sorted(committed)
    assert "register tables" in messages
