"""What the original's SQL extensions let a user of Spark do: references, logs and merges in SQL."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tests.clients.rest import namespace, put
from tests.clients.spark_story import Numbered, Story

if TYPE_CHECKING:
    from tests.clients.rest import Rest
    from tests.clients.spark_story import Rows


class SqlStory(Story):
    """Told in one catalog of Spark, `main`, which begins at the branch of that name."""

    def __init__(self, spark: Any, rest: Rest, main: str, dev: str) -> None:
        super().__init__(spark, rest, main, dev)
        self._numbered = Numbered()

    def tell(self) -> None:
        self._rest.create(self._main)
        # A branch without commits has nothing in common with another: it cannot be merged into.
        self._rest.commit(self._main, "begin", [put("db", content=namespace("db"))])
        self._references()
        self._work()
        self._merge()
        self._the_past()
        self._clean_up()

    def rows(self, statement: str) -> Rows:
        """What a statement answered that was no error."""
        said = self.said[statement]
        assert not isinstance(said, str), said
        return said

    def _meant(self, statement: str) -> str:
        return re.sub(r"\bdev", self._dev, re.sub(r"\bmain\b", self._main, statement))

    def _rows(self, statement: str, answer: Rows) -> Rows:
        if statement.startswith("SELECT"):
            return super()._rows(statement, answer)
        if statement.startswith("LIST"):  # Others are on the server, too.
            answer = [row for row in answer if row[1].startswith(self._main)]
        return [self._same(row) for row in answer]  # In the order of the server.

    def _same(self, value: Any) -> Any:
        if isinstance(value, tuple):
            value = tuple("TIME" if isinstance(item, datetime) else item for item in value)
        return self._numbered(super()._same(value))

    def _references(self) -> None:
        self._say("CREATE BRANCH dev IN main FROM main")
        self._say("CREATE BRANCH dev IN main FROM main", "again")
        self._say("CREATE BRANCH IF NOT EXISTS dev IN main FROM main")
        self._say("CREATE BRANCH `dev/2` IN main FROM main")
        self._say("CREATE BRANCH dev_of_none IN main FROM none")
        self._say("CREATE TAG dev_tag IN main FROM main")
        self._say("CREATE TAG IF NOT EXISTS dev_tag IN main FROM dev")
        self._say("LIST REFERENCES IN main")

    def _work(self) -> None:
        self._say("USE REFERENCE dev IN main")
        self._say("SHOW REFERENCE IN main")
        self._say("CREATE TABLE main.db.t (id BIGINT, name STRING) USING iceberg")
        self._say("INSERT INTO main.db.t VALUES (1, 'one')")
        self._say("INSERT INTO main.db.t VALUES (2, 'two')")
        self._say("SELECT * FROM main.db.t", "on dev")
        self._say("SHOW LOG dev IN main")
        self._say("SHOW LOG IN main", "of the reference in use")
        self._say("USE REFERENCE none IN main")
        self._say("USE REFERENCE main IN main")
        self._say("SELECT * FROM main.db.t", "on main")
        self._say("SELECT * FROM main.db.`t@dev`")

    def _merge(self) -> None:
        self._say("MERGE BRANCH dev INTO main IN main")
        self._say("SELECT * FROM main.db.t", "merged")
        self._say("SHOW LOG main IN main")
        self._say("MERGE BRANCH none INTO main IN main")
        self._say("USE REFERENCE dev IN main", "to differ")
        self._say("INSERT INTO main.db.t VALUES (3, 'on dev')")
        self._say("USE REFERENCE main IN main", "to differ")
        self._say("INSERT INTO main.db.t VALUES (3, 'on main')")
        self._say("MERGE BRANCH dev INTO main IN main", "with a conflict")

    def _the_past(self) -> None:
        merge = self._rest.history(self._main)[1]
        before = merge["parentCommitHash"]
        self._say(f"USE REFERENCE main AT `{before}` IN main")
        self._say("SELECT * FROM main.db.t", "before the merge")
        self._say(f"SHOW LOG main AT `{before}` IN main")
        self._say(f"ASSIGN TAG dev_tag TO main AT `{merge['commitMeta']['hash']}` IN main")
        self._say("USE REFERENCE dev_tag IN main")
        self._say("SELECT * FROM main.db.t", "as it was merged")
        self._say("INSERT INTO main.db.t VALUES (4, 'into a tag')")

    def _clean_up(self) -> None:
        self._say("USE REFERENCE main IN main", "at last")
        self._say("ASSIGN BRANCH dev TO main IN main")
        self._say("SELECT * FROM main.db.`t@dev`", "assigned")
        self._say("ASSIGN BRANCH dev TO none IN main")
        self._say("DROP TAG dev_tag IN main")
        self._say("DROP TAG dev_tag IN main", "again")
        self._say("DROP TAG IF EXISTS dev_tag IN main")
        self._say("DROP BRANCH IF EXISTS none IN main")
        self._say("CREATE BRANCH dev_gone IN main FROM dev")
        self._say("DROP BRANCH dev_gone IN main")
        self._say("LIST REFERENCES IN main", "at last")
