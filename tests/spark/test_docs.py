"""docs/spark.md tells of every option, and what it shows can be typed."""

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
from morag.spark.source.offered import OFFERED
from tests.spark.branches import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.spark.branches import Branch

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # Of the sockets to the JVM.

_TEXT: Final = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
_EXAMPLES: Final = re.findall(r"```python\n(.*?)```", _TEXT, re.DOTALL)
_COMMANDS: Final = re.findall(r"^    morag (spark (?:\\\n|[^\n])*)", _TEXT, re.MULTILINE)

_ELSEWHERE: Final = ("session(", "morag.spark.branch(")
"""What starts another session, or needs Iceberg's jar: tests/clients runs the one of the README."""


@pytest.mark.parametrize(
    "option",
    sorted(
        OPTIONS.union(*OFFERED.values(), stream._OPTIONS, sink._OPTIONS - sink._SPARKS_OWN)
        | {"partitions"}
    ),
)
def test_every_option_is_told_of(option: str) -> None:
    assert f"`{option}`" in _TEXT


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_command_can_be_given(command: str) -> None:
    parser = Parser()
    commands.configure(parser, explain=False)
    words = shlex.split(command.replace("\\\n", ""), comments=True)
    assert callable(parser.parse(words[1:]).job)


def test_every_example_runs(spark: SparkSession, branch: Branch, tmp_path: Path) -> None:
    branch.client.commit("main", [morag.Put(morag.ContentKey.of("orders"), table(1))], "first")
    (tmp_path / "token").write_text("hush")
    here = {
        "http://127.0.0.1:19120": branch.options["uri"],
        "/run/secrets/token": str(tmp_path / "token"),
        "/data/checkpoint": str(tmp_path / "checkpoint"),
    }
    rows = spark.sql("SELECT array('made') AS key, 's3://m' AS metadata_location")
    known: dict[str, Any] = {"spark": spark, "rows": rows}
    queries: dict[str, StreamingQuery] = {}
    ran = 0
    for example in _EXAMPLES:
        if any(each in example for each in _ELSEWHERE):
            continue
        for written, real in here.items():
            example = example.replace(written, real)
        exec(compile(example, "docs/spark.md", "exec"), known)
        queries |= {query.id: query for query in spark.streams.active}
        ran += 1
    assert ran == len(_EXAMPLES) - len(_ELSEWHERE)
    try:
        (query,) = queries.values()
        query.processAllAvailable()  # Raises what has ended it, if it is not active any more.
        query.stop()
        messages = [row.message for row in spark.table("commits").collect()]
    finally:
        spark.sql("DROP TABLE commits")
    committed = [entry.meta.message for entry in branch.client.history.log("main")]
    assert sorted(messages) == sorted(committed)
    assert "register tables" in messages
