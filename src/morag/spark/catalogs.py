"""The Iceberg catalog of a session that shows a branch, and pointing it at another one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from morag.spark.connect import refuse_connect
from morag.spark.errors import CannotRun
from morag.spark.opening import Origin

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

_PREFIX: Final = "spark.sql.catalog."
_NESSIE: Final = "org.apache.iceberg.nessie.NessieCatalog"
_REST: Final = "org.apache.iceberg.rest.RESTCatalog"


class LakeCatalog(Struct, frozen=True):
    """A catalog of a session, by its name in SQL, with its settings."""

    name: str
    settings: dict[str, str]

    @classmethod
    def of(cls, spark: SparkSession, name: str | None) -> LakeCatalog:
        """The catalog of that name; by default the only one that there is."""
        refuse_connect(spark)
        catalogs = _catalogs(spark.conf.getAll)
        found = [each for each, settings in catalogs.items() if _is_of(settings, "nessie", _NESSIE)]
        if name is None and len(found) == 1:
            (name,) = found
        if name is None and len(found) > 1:
            listed = ", ".join(sorted(found))
            raise CannotRun(f"The session has {len(found)} Nessie catalogs: name one of {listed}")
        if name not in found:
            raise CannotRun(_missing(name, catalogs))
        assert name is not None, "a catalog that was found has a name"
        return cls(name, catalogs[name])

    def __repr__(self) -> str:
        return f"LakeCatalog({self.name!r})"  # Its settings may hold a token.

    def origin(self) -> Origin:
        """The server behind the catalog."""
        uri = self.settings.get("uri")
        if uri is None:
            raise CannotRun(f"Catalog '{self.name}' names no server: {_how_to_set(self.name)}")
        uri = uri.rstrip("/")
        if uri.endswith("/api/v1"):  # The same server has both versions.
            uri = uri.removesuffix("v1") + "v2"
        return Origin(uri=uri, token=self.settings.get("authentication.token"))

    @contextmanager
    def at(self, spark: SparkSession, ref: str) -> Iterator[None]:
        """Let the catalog show another reference, as long as the `with` block."""
        setting = f"{_PREFIX}{self.name}.ref"
        before = self.settings.get("ref")
        used = _in_use(spark)
        try:
            spark.conf.set(setting, ref)
            load_again(spark, used)
            try:
                yield
            finally:
                used = _in_use(spark)
        finally:
            if before is None:
                spark.conf.unset(setting)
            else:
                spark.conf.set(setting, before)
            load_again(spark, used)


def load_again(spark: SparkSession, used: Sequence[str] = ()) -> None:
    """Have the session make its catalogs anew when they are next used.

    It reads their settings only then. What it forgets beside them, the catalog and the namespace
    in use, is set again to what is in use or was `used`; temporary views stay.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import AnalysisException, PySparkException  # Errors say how to get it.

    used = used or _in_use(spark)
    _manager(spark).reset()
    try:
        try:
            _use(spark, *used)
        except AnalysisException:  # The namespace was made on the branch, and is not here.
            _use(spark, used[0])
    except (PySparkException, Py4JError) as error:
        raise CannotRun(
            f"Catalog '{used[0]}' was in use and cannot be loaded again: now the session uses its "
            "default catalog"
        ) from error


def _in_use(spark: SparkSession) -> list[str]:
    """The catalog that names without one belong to, and the elements of the namespace."""
    manager = _manager(spark)
    return [manager.currentCatalog().name(), *manager.currentNamespace()]


def _use(spark: SparkSession, *names: str) -> None:
    spark.sql("USE " + ".".join(f"`{name.replace('`', '``')}`" for name in names))


def _manager(spark: SparkSession) -> Any:
    return spark._jsparkSession.sessionState().catalogManager()


def _catalogs(conf: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The settings of each catalog, by its name."""
    found: dict[str, dict[str, str]] = {}
    for key, value in conf.items():
        name, _, setting = key.removeprefix(_PREFIX).partition(".")
        if key.startswith(_PREFIX) and setting:
            found.setdefault(name, {})[setting] = value
    return found


def _is_of(settings: Mapping[str, str], type: str, implementation: str) -> bool:
    return settings.get("type") == type or settings.get("catalog-impl") == implementation


def _missing(name: str | None, catalogs: Mapping[str, Mapping[str, str]]) -> str:
    wanted = catalogs if name is None else catalogs.keys() & {name}
    rest = [each for each in wanted if _is_of(catalogs[each], "rest", _REST)]
    if rest:
        return (
            f"Catalog '{rest[0]}' is one of Iceberg's REST catalogs, which are bound to the branch "
            f"in their uri; have a Nessie catalog beside it: {_how_to_set(f'{rest[0]}_nessie')}"
        )
    if name is None:
        return f"The session has no Nessie catalog: {_how_to_set('lake')}"
    return f"The session has no Nessie catalog '{name}': {_how_to_set(name)}"


def _how_to_set(name: str) -> str:
    catalog = f"{_PREFIX}{name}"
    return (
        f"set {catalog} to org.apache.iceberg.spark.SparkCatalog, {catalog}.catalog-impl to "
        f"{_NESSIE} and {catalog}.uri to the server's, like http://127.0.0.1:19120/api/v2"
    )
