"""Random histories are the same in an imported copy of their repository."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from morag.backend.urls import open_backend
from morag.versions.repository import Repository
from morag.versions.transfer.archive import ArchiveReader
from morag.versions.transfer.archive_writing import new_archive
from morag.versions.transfer.exporting import Exporter, ExportOptions
from morag.versions.transfer.importing import Importer, ImportOptions
from morag.versions.transfer.sources import ArchiveSource
from tests.kernel.catalog_machine import CatalogMachine, bounded
from tests.transfer import nessie_files
from tests.transfer.copies import assert_intact, state

_STORES: Final = ["memory:", "sqlite:{}/store?sync=off", "rocksdb:{}/store?sync=off"]


class TransferMachine(CatalogMachine):
    """At any time, the repository equals an imported copy.

    The machine goes on in the original, because commits without a reference are not exported.
    """

    stores = _STORES[:1]

    def __init__(self) -> None:
        super().__init__()
        self._directory = TemporaryDirectory(prefix="morag-transfer-")
        self._copies = 0

    @rule(
        store=st.integers(0, 2),
        name=st.sampled_from(["files", "files.zip"]),
        max_file_bytes=st.sampled_from([None, 500]),
        newest_first=st.booleans(),
    )
    def compare_with_an_imported_copy(
        self, store: int, name: str, max_file_bytes: int | None, newest_first: bool
    ) -> None:
        self._copies += 1
        directory = Path(self._directory.name) / str(self._copies)
        directory.mkdir()
        with new_archive(directory / name, max_file_bytes=max_file_bytes) as archive:
            exporter = Exporter(
                self.repo._persist, self.backend, archive, ExportOptions(check=True), "1"
            )
            report = exporter.run()
        assert report.unproven == 0
        path = directory / name
        if newest_first:
            path = directory / "newest-first"
            nessie_files.rewrite(directory / name, path, version=3)
        backend = open_backend(self.stores[store % len(self.stores)].format(directory))
        with closing(backend), ArchiveReader(path) as files:
            # Nessie's files lack content ids of deletes, which a forced merge may have hashed.
            options = ImportOptions(strict=not newest_first)
            importer = Importer(backend, self.settings, self.world, options)
            importer.run(ArchiveSource(files))
            copy = Repository(backend, self.settings, self.world)
            left, right = state(self.repo), state(copy)
            if newest_first:  # Nessie's files have less.
                for lost in ("notes", "config", "moves"):
                    del left[lost], right[lost]
            assert left == right
            assert_intact(copy, 3)

    def teardown(self) -> None:
        super().teardown()
        self._directory.cleanup()


class StoresMachine(TransferMachine):
    stores = _STORES


TestMemory = TransferMachine.TestCase
TestMemory.settings = bounded(8, 25)

TestStores = StoresMachine.TestCase
TestStores.settings = bounded(4, 20)


class ThoroughMachine(StoresMachine):
    """The same machine with more and longer histories, for the long tests."""


TestThorough = pytest.mark.timeout(600)(pytest.mark.long(ThoroughMachine.TestCase))
TestThorough.settings = bounded(40, 30)
