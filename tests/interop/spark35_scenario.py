"""SQL statements of Nessie's extensions for Spark: references, logs and merges."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tests.interop.rest import namespace, put
from tests.interop.spark_scenario import Numbered, SparkScenario

if TYPE_CHECKING:
    from tests.interop.rest import Rest
    from tests.interop.spark_scenario import Rows


class NessieSqlScenario(SparkScenario):
    """Uses one catalog of Spark, `main`, which starts at the branch of that name."""

    def __init__(self, spark: Any, rest: Rest, main: str, dev: str) -> None:
        super().__init__(spark, rest, main, dev)
        self._numbered = Numbered()

    def run(self) -> None:
        self._rest.create(self._main)
        # No branch can be merged into one without commits: they have no common ancestor.
        self._rest.commit(self._main, "begin", [put("db", content=namespace("db"))])
        self._references()
        self._work()
        self._merge()
        self._the_past()
        self._clean_up()

    def rows(self, statement: str) -> Rows:
        """The rows of a statement that succeeded."""
        rows = self.results[statement]
        assert not isinstance(rows, str), rows
        return rows

    def _with_real_names(self, statement: str) -> str:
        return re.sub(r"\bdev", self._dev, re.sub(r"\bmain\b", self._main, statement))

    def _rows(self, statement: str, answer: Rows) -> Rows:
        if statement.startswith("SELECT"):
            return super()._rows(statement, answer)
        if statement.startswith("LIST"):  # The server has other references, too.
            answer = [row for row in answer if row[1].startswith(self._main)]
        return [self._normalized(row) for row in answer]  # In the order of the server.

    def _normalized(self, value: Any) -> Any:
        if isinstance(value, tuple):
            value = tuple("TIME" if isinstance(item, datetime) else item for item in value)
        return self._numbered(super()._normalized(value))

    def _references(self) -> None:
        self._run_sql("CREATE BRANCH dev IN main FROM main")
        self._run_sql("CREATE BRANCH dev IN main FROM main", "again")
        self._run_sql("CREATE BRANCH IF NOT EXISTS dev IN main FROM main")
        self._run_sql("CREATE BRANCH `dev/2` IN main FROM main")
        self._run_sql("CREATE BRANCH dev_of_none IN main FROM none")
        self._run_sql("CREATE TAG dev_tag IN main FROM main")
        self._run_sql("CREATE TAG IF NOT EXISTS dev_tag IN main FROM dev")
        self._run_sql("LIST REFERENCES IN main")

    def _work(self) -> None:
        self._run_sql("USE REFERENCE dev IN main")
        self._run_sql("SHOW REFERENCE IN main")
        self._run_sql("CREATE TABLE main.db.t (id BIGINT, name STRING) USING iceberg")
        self._run_sql("INSERT INTO main.db.t VALUES (1, 'one')")
        self._run_sql("INSERT INTO main.db.t VALUES (2, 'two')")
        self._run_sql("SELECT * FROM main.db.t", "on dev")
        self._run_sql("SHOW LOG dev IN main")
        self._run_sql("SHOW LOG IN main", "of the reference in use")
        self._run_sql("USE REFERENCE none IN main")
        self._run_sql("USE REFERENCE main IN main")
        self._run_sql("SELECT * FROM main.db.t", "on main")
        self._run_sql("SELECT * FROM main.db.`t@dev`")

    def _merge(self) -> None:
        self._run_sql("MERGE BRANCH dev INTO main IN main")
        self._run_sql("SELECT * FROM main.db.t", "merged")
        self._run_sql("SHOW LOG main IN main")
        self._run_sql("MERGE BRANCH none INTO main IN main")
        self._run_sql("USE REFERENCE dev IN main", "to differ")
        self._run_sql("INSERT INTO main.db.t VALUES (3, 'on dev')")
        self._run_sql("USE REFERENCE main IN main", "to differ")
        self._run_sql("INSERT INTO main.db.t VALUES (3, 'on main')")
        self._run_sql("MERGE BRANCH dev INTO main IN main", "with a conflict")

    def _the_past(self) -> None:
        merge = self._rest.history(self._main)[1]
        before = merge["parentCommitHash"]
        self._run_sql(f"USE REFERENCE main AT `{before}` IN main")
        self._run_sql("SELECT * FROM main.db.t", "before the merge")
        self._run_sql(f"SHOW LOG main AT `{before}` IN main")
        self._run_sql(f"ASSIGN TAG dev_tag TO main AT `{merge['commitMeta']['hash']}` IN main")
        self._run_sql("USE REFERENCE dev_tag IN main")
        self._run_sql("SELECT * FROM main.db.t", "after the merge")
        self._run_sql("INSERT INTO main.db.t VALUES (4, 'into a tag')")

    def _clean_up(self) -> None:
        self._run_sql("USE REFERENCE main IN main", "at the end")
        self._run_sql("ASSIGN BRANCH dev TO main IN main")
        self._run_sql("SELECT * FROM main.db.`t@dev`", "assigned")
        self._run_sql("ASSIGN BRANCH dev TO none IN main")
        self._run_sql("DROP TAG dev_tag IN main")
        self._run_sql("DROP TAG dev_tag IN main", "again")
        self._run_sql("DROP TAG IF EXISTS dev_tag IN main")
        self._run_sql("DROP BRANCH IF EXISTS none IN main")
        self._run_sql("CREATE BRANCH dev_gone IN main FROM dev")
        self._run_sql("DROP BRANCH dev_gone IN main")
        self._run_sql("LIST REFERENCES IN main", "at the end")
