"""Finds the Nessie catalog of a Spark session, and points it at another branch."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from morag.spark.errors import CannotRun
from morag.spark.opening import Origin
from morag.spark.session import refuse_spark_connect

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
        """The catalog of that name; by default the only one."""
        refuse_spark_connect(spark)
        catalogs = _catalogs(spark.conf.getAll)
        found = [
            each for each, settings in catalogs.items() if _has_type(settings, "nessie", _NESSIE)
        ]
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
            raise CannotRun(f"Catalog '{self.name}' has no uri: {_how_to_set(self.name)}")
        uri = uri.rstrip("/")
        if uri.endswith("/api/v1"):  # The same server has both versions.
            uri = uri.removesuffix("v1") + "v2"
        return Origin(uri=uri, token=self.settings.get("authentication.token"))

    @contextmanager
    def at(self, spark: SparkSession, ref: str) -> Iterator[None]:
        """Point the catalog at another reference for the duration of the `with` block."""
        setting = f"{_PREFIX}{self.name}.ref"
        before = self.settings.get("ref")
        used = _current(spark)
        try:
            spark.conf.set(setting, ref)
            reload_catalogs(spark, used)
            try:
                yield
            finally:
                used = _current(spark)
        finally:
            if before is None:
                spark.conf.unset(setting)
            else:
                spark.conf.set(setting, before)
            reload_catalogs(spark, used)


def reload_catalogs(spark: SparkSession, used: Sequence[str] = ()) -> None:
    """Make the session load its catalogs again when they are next used.

    Only then does it read their settings. It also forgets the current catalog and namespace, so
    these are set again to the current ones or to `used`; temporary views stay.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import AnalysisException, PySparkException

    used = used or _current(spark)
    _manager(spark).reset()
    try:
        try:
            _use(spark, *used)
        except AnalysisException:
            # The namespace was created on the branch, and this reference lacks it.
            _use(spark, used[0])
    except (PySparkException, Py4JError) as error:
        raise CannotRun(
            f"Catalog '{used[0]}' was in use and cannot be loaded again: now the session uses its "
            "default catalog"
        ) from error


def _current(spark: SparkSession) -> list[str]:
    """The current catalog, and the elements of the current namespace."""
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


def _has_type(settings: Mapping[str, str], type: str, implementation: str) -> bool:
    return settings.get("type") == type or settings.get("catalog-impl") == implementation


def _missing(name: str | None, catalogs: Mapping[str, Mapping[str, str]]) -> str:
    wanted = catalogs if name is None else catalogs.keys() & {name}
    rest = [each for each in wanted if _has_type(catalogs[each], "rest", _REST)]
    if rest:
        return (
            f"Catalog '{rest[0]}' is one of Iceberg's REST catalogs, which are bound to the branch "
            f"in their uri; add a Nessie catalog: {_how_to_set(f'{rest[0]}_nessie')}"
        )
    if name is None:
        return f"The session has no Nessie catalog: {_how_to_set('lake')}"
    return f"The session has no Nessie catalog '{name}': {_how_to_set(name)}"


def _how_to_set(name: str) -> str:
    catalog = f"{_PREFIX}{name}"
    return (
        f"set {catalog} to org.apache.iceberg.spark.SparkCatalog, {catalog}.catalog-impl to "
        f"{_NESSIE} and {catalog}.uri to the address of the server, like http://127.0.0.1:19120/api/v2"
    )
