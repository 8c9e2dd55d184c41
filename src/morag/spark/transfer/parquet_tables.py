"""`export_tables`: a repository as Parquet tables, to query a whole history.

The tables are `references`, `commits` and `operations`, each a directory of files. They cannot be
imported: not all that an export has is in them.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from morag.errors import BadRequest
from morag.logic.import_marker import check_not_importing
from morag.logic.reference_reader import short_name
from morag.logic.repository import check_exists, read_description
from morag.model.names import split_full_name
from morag.spark.opening import opened_backend
from morag.spark.source.arrow_batches import Batches
from morag.spark.transfer.export_files import WORK, remove_work
from morag.spark.transfer.history_tasks import HistoryTasks
from morag.spark.transfer.parquet_files import TABLES, parquet_file, write_tables
from morag.spark.transfer.stores import persist_on, settings_of, store_url
from morag.versions.transfer.exporting import ExportReport, consistent_references
from morag.versions.transfer.file_names import file_problems
from morag.versions.transfer.reference_choice import chosen_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from morag.format.records import Ref
    from morag.spark.opening import Origin
    from morag.spark.progress import ProgressCallback

_REFERENCES: Final = "references"
_REFERENCE_COLUMNS: Final = StructType(
    [
        StructField("name", StringType()),
        StructField("type", StringType()),
        StructField("hash", StringType()),
        StructField("created", TimestampType()),
    ]
)


def export_tables(
    spark: SparkSession,
    origin: Origin,
    path: str,
    *,
    references: Sequence[str] = (),
    file_commits: int | None = None,
    progress: ProgressCallback | None = None,
) -> ExportReport:
    """Write a repository in a store to Parquet tables in a new directory, while servers may go on.

    The table `references` is written last: without it, an export is not complete. Other parameters
    are those of `export_repository`.
    """
    store_url(origin)
    directory = Path(path).absolute()
    with ExitStack() as stack:
        backend = stack.enter_context(opened_backend(origin))
        persist = persist_on(backend, settings_of(origin))
        check_exists(persist)
        check_not_importing(read_description(persist))
        found = [ref for ref in consistent_references(persist) if split_full_name(ref.name)]
        names = {*chosen_names([ref.name for ref in found], references)}
        chosen = [ref for ref in found if ref.name in names]
        _make_directories(directory)
        write = partial(write_tables, origin, str(directory))
        tasks = HistoryTasks(spark, persist, write, file_commits, progress)
        files, _ = tasks.run([ref.pointer for ref in chosen])
    _write_references(directory, chosen)
    remove_work(directory)
    return ExportReport(
        references=len(chosen), commits=sum(file.commits for file in files), objects=0, unproven=0
    )


def _make_directories(directory: Path) -> None:
    with file_problems(directory):
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise BadRequest(
                f"The directory '{directory}' has files in it; name a new one, or remove its files"
            )
        for name in (WORK, *TABLES, _REFERENCES):
            (directory / name).mkdir()


def _write_references(directory: Path, references: Sequence[Ref]) -> None:
    kinds = [split_full_name(ref.name) for ref in references]
    batch = Batches(_REFERENCE_COLUMNS).batch(
        len(references),
        {
            "name": lambda: [short_name(ref.name) for ref in references],
            "type": lambda: [kind and kind[0] for kind in kinds],
            "hash": lambda: [ref.pointer.hex() for ref in references],
            "created": lambda: [ref.created_micros or None for ref in references],
        },
    )
    with parquet_file(directory, _REFERENCES, 1, _REFERENCE_COLUMNS) as add:
        add(batch)
