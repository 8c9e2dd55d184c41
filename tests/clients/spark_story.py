"""A day's work in Spark on one catalog: everything that it said, and what the server holds then.

The same story is told on several servers, so what it gives must not depend on chance: hashes and
ids become numbers in the order in which they appear, and times are left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from tests.clients.rest import Json, Rest

Rows: TypeAlias = list[tuple[Any, ...]]
_BY_CHANCE: Final = re.compile(
    r"[0-9a-f]{64}"  # A hash.
    r"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # An id, also in the name of a file.
    r"|\b\d{16,19}\b"  # A snapshot.
)
_TIMES: Final = {"commitTime", "authorTime"}


class Story:
    """`main` and `dev` are two catalogs of Spark, on two branches of the server that `rest` asks.

    Both branches must not exist yet: they begin here, and with nothing.
    """

    def __init__(self, spark: Any, rest: Rest, main: str, dev: str) -> None:
        self._spark = spark
        self._rest = rest
        self._main = main
        self._dev = dev
        self.said: dict[str, Rows | str] = {}
        """What came of each statement, by its text: rows, or the error."""

    def tell(self) -> None:
        self._rest.create(self._main)
        self._namespaces()
        self._a_table()
        self._a_branch()
        self._time_travel()
        self._views()
        self._moving_and_dropping()

    def held(self) -> Json:
        """All references of the story, with their histories and contents."""
        return _Canon().of(
            {
                branch: [self._rest.history(branch), self._rest.entries(branch)]
                for branch in (self._main, self._dev)
            }
        )

    def _namespaces(self) -> None:
        self._say("CREATE NAMESPACE main.db WITH DBPROPERTIES (colour = 'red', shape = 'round')")
        self._say("CREATE NAMESPACE main.db")
        self._say("CREATE NAMESPACE main.db.inner")
        self._say("CREATE NAMESPACE main.none.inner")
        self._say("CREATE NAMESPACE main.`with.dots`")
        self._say("SHOW NAMESPACES IN main")
        self._say("SHOW NAMESPACES IN main.db")
        self._say("ALTER NAMESPACE main.db SET PROPERTIES (size = 'big', colour = 'blue')")
        self._say("ALTER NAMESPACE main.db UNSET PROPERTIES (shape)")
        self._say("DESCRIBE NAMESPACE EXTENDED main.db")
        self._say("DESCRIBE NAMESPACE main.none")
        self._say("DROP NAMESPACE main.db")
        self._say("DROP NAMESPACE main.`with.dots`")
        self._say("DROP NAMESPACE main.none")
        self._say("SHOW NAMESPACES IN main", "without the dropped")

    def _a_table(self) -> None:
        self._say("CREATE TABLE main.db.t (id BIGINT, name STRING) USING iceberg")
        self._say("CREATE TABLE main.db.t (id BIGINT) USING iceberg")
        self._say("CREATE TABLE main.none.t (id BIGINT) USING iceberg")
        self._say("SELECT * FROM main.db.t", "empty")
        self._say("INSERT INTO main.db.t VALUES (1, 'one'), (2, 'two')")
        self._say("SELECT * FROM main.db.t", "two rows")
        self._say("ALTER TABLE main.db.t ADD COLUMN more INT")
        self._say("UPDATE main.db.t SET more = 5 WHERE id = 1")
        self._say("DELETE FROM main.db.t WHERE id = 2")
        self._say("SELECT * FROM main.db.t", "changed")
        self._say("CREATE TABLE main.db.inner.copy USING iceberg AS SELECT id FROM main.db.t")
        self._say("SELECT * FROM main.db.inner.copy")
        self._say("SHOW TABLES IN main.db")
        self._say("SHOW TABLES IN main.db.inner")
        self._say("DROP NAMESPACE main.db", "with a table")
        self._say("SELECT count(*) FROM main.db.t.snapshots")

    def _a_branch(self) -> None:
        self._rest.create(self._dev, self._rest.head(self._main))
        self._say("INSERT INTO dev.db.t VALUES (3, 'three', 6)")
        self._say("CREATE TABLE dev.db.extra (id BIGINT) USING iceberg PARTITIONED BY (id)")
        self._say("INSERT INTO dev.db.extra VALUES (1), (2)")
        self._say("SELECT * FROM dev.db.t")
        self._say("SELECT * FROM main.db.t", "while dev is ahead")
        self._say("SHOW TABLES IN main.db", "while dev is ahead")
        self._rest.merge(self._dev, self._main)
        self._say("SELECT * FROM main.db.t", "merged")
        self._say("SELECT * FROM main.db.extra", "merged")
        self._say("INSERT INTO main.db.t VALUES (4, 'four', 7)")
        self._say("SELECT * FROM main.db.t", "after the merge")
        self._say("SELECT * FROM dev.db.t", "after the merge")

    def _time_travel(self) -> None:
        log = self._rest.history(self._main)
        merged, before = log[1]["commitMeta"], log[1]["parentCommitHash"]
        self._say(f"SELECT * FROM main.db.`t@{self._dev}`", "by branch")
        self._say(f"SELECT * FROM main.db.`t@{self._main}#{before}`", "by hash, before the merge")
        self._say(f"SELECT * FROM main.db.`t@{self._main}#{merged['hash']}`", "by hash, merged")
        self._say(f"SELECT * FROM main.db.`t#{before}`", "by hash alone")
        self._say("SELECT * FROM main.db.`t@none`", "by a branch that is not there")
        self._say(f"SELECT * FROM main.db.`extra@{self._main}#{before}`", "before it was there")
        self._say(f"INSERT INTO main.db.`t@{self._main}#{before}` VALUES (9, 'no', 9)", "by hash")

    def _views(self) -> None:
        self._say("CREATE VIEW main.db.v AS SELECT name FROM main.db.t WHERE id > 1")
        self._say("CREATE VIEW main.db.v AS SELECT 1")
        self._say("SELECT * FROM main.db.v")
        self._say("CREATE OR REPLACE VIEW main.db.v AS SELECT more FROM main.db.t")
        self._say("SELECT * FROM main.db.v", "replaced")
        self._say("SHOW VIEWS IN main.db")
        self._say("ALTER VIEW main.db.v SET TBLPROPERTIES (colour = 'red')")
        self._say("ALTER VIEW main.db.v RENAME TO main.db.w")
        self._say("SELECT * FROM main.db.w")
        self._say("DROP VIEW main.db.w")
        self._say("SHOW VIEWS IN main.db", "none")

    def _moving_and_dropping(self) -> None:
        self._say("ALTER TABLE main.db.t RENAME TO db.inner.moved")
        self._say("SELECT * FROM main.db.t", "moved")
        self._say("SELECT * FROM main.db.inner.moved")
        self._say("INSERT INTO main.db.inner.moved VALUES (5, 'five', 8)")
        self._say("ALTER TABLE main.db.extra RENAME TO db.inner.moved")
        self._say("DROP TABLE main.db.extra")
        self._say("DROP TABLE main.db.extra", "again")
        self._say("SHOW TABLES IN main.db", "dropped")
        self._say("SHOW TABLES IN main.db.inner", "moved")
        self._say("CREATE TABLE main.db.extra (other STRING) USING iceberg")
        self._say("INSERT INTO main.db.extra VALUES ('made anew')")
        self._say("SELECT * FROM main.db.extra", "made anew")
        self._say("SELECT * FROM dev.db.extra", "as it was")
        for table in ("inner.copy", "inner.moved", "extra"):
            self._say(f"DROP TABLE main.db.{table}", "at last")
        self._say("DROP NAMESPACE main.db.inner")
        self._say("DROP NAMESPACE main.db", "empty")
        self._say("SHOW NAMESPACES IN main", "none")

    def _say(self, statement: str, when: str = "") -> None:
        sql = re.sub(r"\bmain\.|\bmain$", lambda it: it[0].replace("main", self._main), statement)
        sql = sql.replace("dev.db", f"{self._dev}.db")
        shown = f"{statement} -- {when}" if when else statement
        shown = self._same(shown)
        assert shown not in self.said, f"said twice: {shown}"
        try:
            # Rows of a query come in any order.
            self.said[shown] = sorted((tuple(row) for row in self._spark.sql(sql).collect()), key=str)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            self.said[shown] = self._same(_explained(error))

    def _same(self, text: str) -> str:
        text = text.replace(self._main, "main").replace(self._dev, "dev")
        return re.sub(r"#[0-9a-f]{64}", "#HASH", text)


class _Canon:
    def __init__(self) -> None:
        self._numbers: dict[str, str] = {}

    def of(self, value: Json) -> Json:
        if isinstance(value, dict):
            return {k: self.of(v) for k, v in value.items() if k not in _TIMES}
        if isinstance(value, list):
            return [self.of(item) for item in value]
        if isinstance(value, str):
            return _BY_CHANCE.sub(lambda it: self._number(it[0]), value)
        if isinstance(value, int) and value > 2**53:
            return self._number(str(value))
        return value

    def _number(self, text: str) -> str:
        return self._numbers.setdefault(text, f"${len(self._numbers)}")


def _explained(error: Exception) -> str:
    """The name of the error in Java, where it has one, and the first line of what it says."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    name = java.getClass().getSimpleName() if java is not None else type(error).__name__
    said = java.getMessage() if java is not None else str(error)
    return f"{name}: {said.splitlines()[0]}"
