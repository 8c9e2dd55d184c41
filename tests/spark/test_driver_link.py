"""Executors reach the rows of the driver's store, and nobody else does."""

from __future__ import annotations

import socket
from contextlib import nullcontext
from multiprocessing import AuthenticationError
from threading import enumerate as threads
from time import monotonic, sleep
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from msgspec.structs import replace

from morag.backend.memory import MemoryBackend
from morag.backend.urls import StoreUrl
from morag.format.records import ObjId, Row
from morag.spark.driver_link import DriverListener, check_writable
from morag.spark.errors import CannotRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

ROW = Row(ObjId(bytes(32)), "c", b"data", None, 1)


@pytest.fixture
def listener() -> Iterator[DriverListener]:
    with DriverListener(MemoryBackend()) as listener:
        yield listener


def test_rows_are_stored_and_read_and_units_counted(listener: DriverListener) -> None:
    link = listener.address.connect()
    assert link.insert_rows("r", [ROW]) == {ROW.id}
    assert link.read_rows("r", [ROW.id]) == {ROW.id: ROW}
    link.count(3)
    link.count(4)
    assert listener.units == 7
    link.close()


def test_only_this_machine_can_connect(listener: DriverListener) -> None:
    assert listener.address.host == "127.0.0.1"


def test_the_key_is_not_shown(listener: DriverListener) -> None:
    assert repr(listener.address) == "DriverAddress()"


def test_a_client_without_the_key_is_refused(listener: DriverListener) -> None:
    with pytest.raises(AuthenticationError):
        replace(listener.address, key=b"guessed").connect()


def test_a_client_that_says_nothing_keeps_nobody_out(listener: DriverListener) -> None:
    with socket.create_connection((listener.address.host, listener.address.port)):
        link = listener.address.connect()
        link.count(1)
        link.close()
    assert listener.units == 1


def test_an_error_of_the_store_reaches_the_executor() -> None:
    class Broken(MemoryBackend):
        def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
            raise OSError("the disk is full")

    with DriverListener(Broken()) as listener:
        link = listener.address.connect()
        with pytest.raises(CannotRun, match="the disk is full"):
            link.insert_rows("r", [ROW])
        link.close()


def test_no_thread_is_left(listener: DriverListener) -> None:
    before = {*threads()}
    with DriverListener(MemoryBackend()) as other:
        other.address.connect().close()
    until = monotonic() + 5
    while {*threads()} - before and monotonic() < until:
        sleep(0.01)
    assert not {*threads()} - before


@pytest.mark.parametrize(
    ("master", "store", "is_refused"),
    [
        ("local[2]", "rocksdb:x", False),
        ("spark://host:7077", "rocksdb:x", True),
        ("spark://host:7077", "postgresql://host/db", False),
    ],
)
def test_a_store_with_one_writer_needs_executors_on_this_machine(
    master: str, store: str, is_refused: bool
) -> None:
    spark = cast("SparkSession", SimpleNamespace(sparkContext=SimpleNamespace(master=master)))
    with pytest.raises(CannotRun, match="local") if is_refused else nullcontext():
        check_writable(spark, StoreUrl.parse(store))
