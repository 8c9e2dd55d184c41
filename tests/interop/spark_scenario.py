"""A sequence of SQL statements in Spark, with their results and the final state of the server.

The same statements run on several servers and the results are compared. So random hashes, ids and
snapshots are replaced by numbers in the order in which they appear, and times are left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from tests.interop.rest import Json, Rest

Rows: TypeAlias = list[tuple[Any, ...]]
_RANDOM: Final = re.compile(
    r"[0-9a-f]{64}"  # A hash.
    r"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # An id, also in the name of a file.
)
_SNAPSHOT: Final = 2**32  # Random ids of snapshots are larger than this.
_TIMES: Final = {"commitTime", "authorTime"}


class SparkScenario:
    """Uses two catalogs of Spark, `main` and `dev`, on branches of the same names.

    The branches must not exist yet: this creates them without commits.
    """

    def __init__(self, spark: Any, rest: Rest, main: str, dev: str) -> None:
        self._spark = spark
        self._rest = rest
        self._names = {dev: "dev", main: "main"}
        self._main, self._dev = main, dev
        self.results: dict[str, Rows | str] = {}
        """The rows or the error of each statement."""

    def run(self) -> None:
        self._rest.create(self._main)
        self._namespaces()
        self._a_table()
        self._a_branch()
        self._time_travel()
        self._views()
        self._moving_and_dropping()

    def stored_state(self) -> Json:
        """Both branches, with their histories and contents."""
        numbered = Numbered()
        return [
            numbered(self._normalized(part))
            for branch in (self._main, self._dev)
            for part in (self._rest.history(branch), self._rest.entries(branch))
        ]

    def _namespaces(self) -> None:
        self._run_sql(
            "CREATE NAMESPACE main.db WITH DBPROPERTIES (colour = 'red', shape = 'round')"
        )
        self._run_sql("CREATE NAMESPACE main.db")
        self._run_sql("CREATE NAMESPACE main.db.inner")
        self._run_sql("CREATE NAMESPACE main.none.inner")
        self._run_sql("CREATE NAMESPACE main.`with.dots`")
        self._run_sql("SHOW NAMESPACES IN main")
        self._run_sql("SHOW NAMESPACES IN main.db")
        self._run_sql("ALTER NAMESPACE main.db SET PROPERTIES (size = 'big', colour = 'blue')")
        self._run_sql("ALTER NAMESPACE main.db UNSET PROPERTIES (shape)")
        self._run_sql("DESCRIBE NAMESPACE EXTENDED main.db")
        self._run_sql("DESCRIBE NAMESPACE main.none")
        self._run_sql("DROP NAMESPACE main.db")
        self._run_sql("DROP NAMESPACE main.`with.dots`")
        self._run_sql("DROP NAMESPACE main.none")
        self._run_sql("SHOW NAMESPACES IN main", "one dropped")

    def _a_table(self) -> None:
        self._run_sql("CREATE TABLE main.db.t (id BIGINT, name STRING) USING iceberg")
        self._run_sql("CREATE TABLE main.db.t (id BIGINT) USING iceberg")
        self._run_sql("CREATE TABLE main.none.t (id BIGINT) USING iceberg")
        self._run_sql("SELECT * FROM main.db.t", "created")
        self._run_sql("INSERT INTO main.db.t VALUES (1, 'one'), (2, 'two')")
        self._run_sql("SELECT * FROM main.db.t", "inserted")
        self._run_sql("ALTER TABLE main.db.t ADD COLUMN more INT")
        self._run_sql("UPDATE main.db.t SET more = 5 WHERE id = 1")
        self._run_sql("DELETE FROM main.db.t WHERE id = 2")
        self._run_sql("SELECT * FROM main.db.t", "changed")
        self._run_sql("CREATE TABLE main.db.inner.copy USING iceberg AS SELECT id FROM main.db.t")
        self._run_sql("SELECT * FROM main.db.inner.copy")
        self._run_sql("SHOW TABLES IN main.db")
        self._run_sql("SHOW TABLES IN main.db.inner")
        self._run_sql("DROP NAMESPACE main.db", "with tables")
        self._run_sql("SELECT count(*) FROM main.db.t.snapshots")

    def _a_branch(self) -> None:
        self._rest.create(self._dev, self._rest.head(self._main))
        self._run_sql("INSERT INTO dev.db.t VALUES (3, 'three', 6)")
        self._run_sql("CREATE TABLE dev.db.extra (id BIGINT) USING iceberg PARTITIONED BY (id)")
        self._run_sql("INSERT INTO dev.db.extra VALUES (1), (2)")
        self._run_sql("SELECT * FROM dev.db.t", "ahead")
        self._run_sql("SELECT * FROM main.db.t", "behind")
        self._run_sql("SHOW TABLES IN main.db", "behind")
        self._rest.merge(self._dev, self._main)
        self._run_sql("SELECT * FROM main.db.t", "merged")
        self._run_sql("SELECT * FROM main.db.extra", "merged")
        self._run_sql("INSERT INTO main.db.t VALUES (4, 'four', 7)")
        self._run_sql("SELECT * FROM main.db.t", "later")
        self._run_sql("SELECT * FROM dev.db.t", "later")

    def _time_travel(self) -> None:
        merge = self._rest.history(self._main)[1]
        before, after = (
            f"{self._main}#{hash}"
            for hash in (merge["parentCommitHash"], merge["commitMeta"]["hash"])
        )
        self._run_sql(f"SELECT * FROM main.db.`t@{self._dev}`", "on another branch")
        self._run_sql(f"SELECT * FROM main.db.`t@{before}`", "before the merge")
        self._run_sql(f"SELECT * FROM main.db.`t@{after}`", "after the merge")
        self._run_sql(f"SELECT * FROM main.db.`extra@{before}`", "before it existed")
        self._run_sql("SELECT * FROM main.db.`t@none`", "on an unknown branch")
        self._run_sql(f"INSERT INTO main.db.`t@{before}` VALUES (9, 'no', 9)", "into the past")

    def _views(self) -> None:
        self._run_sql("CREATE VIEW main.db.v AS SELECT name FROM main.db.t WHERE id > 1")
        self._run_sql("CREATE VIEW main.db.v AS SELECT 1")
        self._run_sql("SELECT * FROM main.db.v")
        self._run_sql("CREATE OR REPLACE VIEW main.db.v AS SELECT more FROM main.db.t")
        self._run_sql("SELECT * FROM main.db.v", "replaced")
        self._run_sql("SHOW VIEWS IN main.db")
        self._run_sql("ALTER VIEW main.db.v SET TBLPROPERTIES (colour = 'red')")
        self._run_sql("ALTER VIEW main.db.v RENAME TO main.db.w")
        self._run_sql("SELECT * FROM main.db.w")
        self._run_sql("DROP VIEW main.db.w")
        self._run_sql("SHOW VIEWS IN main.db", "dropped")

    def _moving_and_dropping(self) -> None:
        self._run_sql("ALTER TABLE main.db.t RENAME TO db.inner.moved")
        self._run_sql("SELECT * FROM main.db.t", "moved")
        self._run_sql("SELECT * FROM main.db.inner.moved")
        self._run_sql("INSERT INTO main.db.inner.moved VALUES (5, 'five', 8)")
        self._run_sql("ALTER TABLE main.db.extra RENAME TO db.inner.moved")
        self._run_sql("DROP TABLE main.db.extra")
        self._run_sql("DROP TABLE main.db.extra", "again")
        self._run_sql("SHOW TABLES IN main.db", "moved and dropped")
        self._run_sql("CREATE TABLE main.db.extra (other STRING) USING iceberg")
        self._run_sql("INSERT INTO main.db.extra VALUES ('created again')")
        self._run_sql("SELECT * FROM main.db.extra", "created again")
        self._run_sql("SELECT * FROM dev.db.extra", "unchanged")
        for table in ("inner.copy", "inner.moved", "extra"):
            self._run_sql(f"DROP TABLE main.db.{table}", "at the end")
        self._run_sql("DROP NAMESPACE main.db.inner")
        self._run_sql("DROP NAMESPACE main.db", "empty")
        self._run_sql("SHOW NAMESPACES IN main", "none left")

    def _run_sql(self, statement: str, when: str = "") -> None:
        key = self._normalized(f"{statement} -- {when}" if when else statement)
        assert key not in self.results, f"two statements have the same key: {key}"
        try:
            answer = self._spark.sql(self._with_real_names(statement)).collect()
        except (PySparkException, Py4JJavaError) as error:
            self.results[key] = self._normalized(_message(error))
        else:
            self.results[key] = self._rows(statement, [tuple(row) for row in answer])

    def _rows(self, statement: str, answer: Rows) -> Rows:
        """Rows in a form that can be compared. Spark returns them in any order."""
        return sorted((self._normalized(row) for row in answer), key=str)

    def _with_real_names(self, statement: str) -> str:
        """The statement with the names of the branches on this server."""
        sql = re.sub(r"\bmain(?=\.|$)", self._main, statement)
        return re.sub(r"\bdev(?=\.)", self._dev, sql)

    def _normalized(self, value: Any) -> Any:
        """The value without names and hashes that differ between servers."""
        if isinstance(value, str):
            for name, role in self._names.items():
                value = value.replace(name, role)
            return re.sub(r"#[0-9a-f]{64}", "#HASH", value)
        if isinstance(value, tuple | list):
            return type(value)(self._normalized(item) for item in value)
        if isinstance(value, dict):
            return {key: self._normalized(item) for key, item in value.items()}
        return value


class Numbered:
    """Replaces random values by numbers, in the order in which they appear."""

    def __init__(self) -> None:
        self._numbers: dict[str | int, str] = {}

    def __call__(self, value: Json) -> Json:
        if isinstance(value, dict):
            return {key: self(item) for key, item in value.items() if key not in _TIMES}
        if isinstance(value, list | tuple):
            return type(value)(self(item) for item in value)
        if isinstance(value, str):
            return _RANDOM.sub(lambda found: self._number(found[0]), value)
        if isinstance(value, int) and value > _SNAPSHOT:
            return self._number(value)
        return value

    def _number(self, random: str | int) -> str:
        return self._numbers.setdefault(random, f"${len(self._numbers)}")


def _message(error: Exception) -> str:
    """The first line of an error; for an error of the catalog, without Spark's text around it."""
    if isinstance(error, Py4JJavaError):
        java = error.java_exception
        return f"{java.getClass().getSimpleName()}: {java.getMessage()}".splitlines()[0]
    return f"{type(error).__name__}: {error}".splitlines()[0]
