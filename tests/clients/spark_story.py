"""A day's work in Spark on one catalog: all that it answered, and what the server holds then.

The same story is told on several servers, so what comes out must not depend on chance: hashes, ids
and snapshots become numbers in the order in which they appear, and times are left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from tests.clients.rest import Json, Rest

Rows: TypeAlias = list[tuple[Any, ...]]
_BY_CHANCE: Final = re.compile(
    r"[0-9a-f]{64}"  # A hash.
    r"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # An id, also in the name of a file.
)
_SNAPSHOT: Final = 2**32  # A snapshot's number is random, and none is that small.
_TIMES: Final = {"commitTime", "authorTime"}


class Story:
    """Told on two catalogs of Spark, `main` and `dev`, on branches of the same names.

    The branches must not exist yet: they begin here, with nothing.
    """

    def __init__(self, spark: Any, rest: Rest, main: str, dev: str) -> None:
        self._spark = spark
        self._rest = rest
        self._names = {dev: "dev", main: "main"}
        self._main, self._dev = main, dev
        self.said: dict[str, Rows | str] = {}
        """Rows or an error, by the statement that they answer."""

    def tell(self) -> None:
        self._rest.create(self._main)
        self._namespaces()
        self._a_table()
        self._a_branch()
        self._time_travel()
        self._views()
        self._moving_and_dropping()

    def held(self) -> Json:
        """Both branches, with their histories and contents."""
        numbered = Numbered()
        return [
            numbered(self._same(part))
            for branch in (self._main, self._dev)
            for part in (self._rest.history(branch), self._rest.entries(branch))
        ]

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
        self._say("SHOW NAMESPACES IN main", "one dropped")

    def _a_table(self) -> None:
        self._say("CREATE TABLE main.db.t (id BIGINT, name STRING) USING iceberg")
        self._say("CREATE TABLE main.db.t (id BIGINT) USING iceberg")
        self._say("CREATE TABLE main.none.t (id BIGINT) USING iceberg")
        self._say("SELECT * FROM main.db.t", "created")
        self._say("INSERT INTO main.db.t VALUES (1, 'one'), (2, 'two')")
        self._say("SELECT * FROM main.db.t", "inserted")
        self._say("ALTER TABLE main.db.t ADD COLUMN more INT")
        self._say("UPDATE main.db.t SET more = 5 WHERE id = 1")
        self._say("DELETE FROM main.db.t WHERE id = 2")
        self._say("SELECT * FROM main.db.t", "changed")
        self._say("CREATE TABLE main.db.inner.copy USING iceberg AS SELECT id FROM main.db.t")
        self._say("SELECT * FROM main.db.inner.copy")
        self._say("SHOW TABLES IN main.db")
        self._say("SHOW TABLES IN main.db.inner")
        self._say("DROP NAMESPACE main.db", "with tables")
        self._say("SELECT count(*) FROM main.db.t.snapshots")

    def _a_branch(self) -> None:
        self._rest.create(self._dev, self._rest.head(self._main))
        self._say("INSERT INTO dev.db.t VALUES (3, 'three', 6)")
        self._say("CREATE TABLE dev.db.extra (id BIGINT) USING iceberg PARTITIONED BY (id)")
        self._say("INSERT INTO dev.db.extra VALUES (1), (2)")
        self._say("SELECT * FROM dev.db.t", "ahead")
        self._say("SELECT * FROM main.db.t", "behind")
        self._say("SHOW TABLES IN main.db", "behind")
        self._rest.merge(self._dev, self._main)
        self._say("SELECT * FROM main.db.t", "merged")
        self._say("SELECT * FROM main.db.extra", "merged")
        self._say("INSERT INTO main.db.t VALUES (4, 'four', 7)")
        self._say("SELECT * FROM main.db.t", "later")
        self._say("SELECT * FROM dev.db.t", "later")

    def _time_travel(self) -> None:
        merge = self._rest.history(self._main)[1]
        before, after = (
            f"{self._main}#{hash}"
            for hash in (merge["parentCommitHash"], merge["commitMeta"]["hash"])
        )
        self._say(f"SELECT * FROM main.db.`t@{self._dev}`", "on another branch")
        self._say(f"SELECT * FROM main.db.`t@{before}`", "before the merge")
        self._say(f"SELECT * FROM main.db.`t@{after}`", "after the merge")
        self._say(f"SELECT * FROM main.db.`extra@{before}`", "before it was there")
        self._say("SELECT * FROM main.db.`t@none`", "on a branch that is not there")
        self._say(f"INSERT INTO main.db.`t@{before}` VALUES (9, 'no', 9)", "into the past")

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
        self._say("SHOW VIEWS IN main.db", "dropped")

    def _moving_and_dropping(self) -> None:
        self._say("ALTER TABLE main.db.t RENAME TO db.inner.moved")
        self._say("SELECT * FROM main.db.t", "moved")
        self._say("SELECT * FROM main.db.inner.moved")
        self._say("INSERT INTO main.db.inner.moved VALUES (5, 'five', 8)")
        self._say("ALTER TABLE main.db.extra RENAME TO db.inner.moved")
        self._say("DROP TABLE main.db.extra")
        self._say("DROP TABLE main.db.extra", "again")
        self._say("SHOW TABLES IN main.db", "moved and dropped")
        self._say("CREATE TABLE main.db.extra (other STRING) USING iceberg")
        self._say("INSERT INTO main.db.extra VALUES ('made anew')")
        self._say("SELECT * FROM main.db.extra", "made anew")
        self._say("SELECT * FROM dev.db.extra", "as it was")
        for table in ("inner.copy", "inner.moved", "extra"):
            self._say(f"DROP TABLE main.db.{table}", "at last")
        self._say("DROP NAMESPACE main.db.inner")
        self._say("DROP NAMESPACE main.db", "empty")
        self._say("SHOW NAMESPACES IN main", "none left")

    def _say(self, statement: str, when: str = "") -> None:
        asked = self._same(f"{statement} -- {when}" if when else statement)
        assert asked not in self.said, f"said twice: {asked}"
        try:
            answer = self._spark.sql(self._meant(statement)).collect()
        except (PySparkException, Py4JJavaError) as error:
            self.said[asked] = self._same(_explained(error))
        else:
            self.said[asked] = self._rows(statement, [tuple(row) for row in answer])

    def _rows(self, statement: str, answer: Rows) -> Rows:
        """Rows that can be compared. Spark says them in no order."""
        return sorted((self._same(row) for row in answer), key=str)

    def _meant(self, statement: str) -> str:
        """The statement with the names of this server's story."""
        sql = re.sub(r"\bmain(?=\.|$)", self._main, statement)
        return re.sub(r"\bdev(?=\.)", self._dev, sql)

    def _same(self, value: Any) -> Any:
        """Without the names by which one server's story differs from another's."""
        if isinstance(value, str):
            for name, role in self._names.items():
                value = value.replace(name, role)
            return re.sub(r"#[0-9a-f]{64}", "#HASH", value)
        if isinstance(value, tuple | list):
            return type(value)(self._same(item) for item in value)
        if isinstance(value, dict):
            return {key: self._same(item) for key, item in value.items()}
        return value


class Numbered:
    """What chance chose, numbered as it appears."""

    def __init__(self) -> None:
        self._numbers: dict[str | int, str] = {}

    def __call__(self, value: Json) -> Json:
        if isinstance(value, dict):
            return {key: self(item) for key, item in value.items() if key not in _TIMES}
        if isinstance(value, list | tuple):
            return type(value)(self(item) for item in value)
        if isinstance(value, str):
            return _BY_CHANCE.sub(lambda found: self._number(found[0]), value)
        if isinstance(value, int) and value > _SNAPSHOT:
            return self._number(value)
        return value

    def _number(self, chosen: str | int) -> str:
        return self._numbers.setdefault(chosen, f"${len(self._numbers)}")


def _explained(error: Exception) -> str:
    """What is wrong in one line. Where Spark passes on an error of the catalog, that one's."""
    if isinstance(error, Py4JJavaError):
        java = error.java_exception
        return f"{java.getClass().getSimpleName()}: {java.getMessage()}".splitlines()[0]
    return f"{type(error).__name__}: {error}".splitlines()[0]
