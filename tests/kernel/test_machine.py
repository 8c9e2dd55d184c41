"""Random histories of a repository equal those of its model, on each embedded store."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import ClassVar

import pytest

from tests.kernel.catalog_machine import CatalogMachine, bounded


class MachineOnDisk(CatalogMachine):
    scheme: ClassVar[str]

    def __init__(self) -> None:
        self.directory = TemporaryDirectory(prefix="morag-machine-")
        super().__init__(f"{self.scheme}:{self.directory.name}/store?sync=off")

    def teardown(self) -> None:
        super().teardown()
        self.directory.cleanup()


class RocksDBMachine(MachineOnDisk):
    scheme = "rocksdb"


class SQLiteMachine(MachineOnDisk):
    scheme = "sqlite"


class ThoroughMachine(CatalogMachine):
    """The same machine with more and longer histories, for the long tests."""


TestMemory = CatalogMachine.TestCase
TestMemory.settings = bounded(50)

TestRocksDB = RocksDBMachine.TestCase
TestRocksDB.settings = bounded(12)

TestSQLite = SQLiteMachine.TestCase
TestSQLite.settings = bounded(12)

TestThorough = pytest.mark.long(ThoroughMachine.TestCase)
TestThorough.settings = bounded(300, 50)
