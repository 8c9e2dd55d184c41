"""The format `morag` refuses wrong options, with advice."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StringType, StructField, StructType

import morag
from morag import ContentKey, Put, StoreReadOnly
from morag.errors import ReferenceNotFound
from morag.spark import CannotRun, Origin, opened
from morag.spark.source.source import MoragDataSource
from tests.spark.in_process_read import Read
from tests.spark.sample_catalog import table

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:{tmp_path_factory.mktemp('store') / 'catalog.db'}"
    morag.open(url).close()
    return url


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({}, "Name the catalog by one option: 'uri' for a server"),
        ({"uri": "http://127.0.0.1:1", "store": "sqlite:x"}, "Name the catalog by one option"),
        ({"store": "memory:"}, "serve it .* and name that server by 'uri'"),
        ({"store": "paper:x"}, "'paper:' is not a kind of store"),
        ({"store": "rocksdb:/no/where"}, "There is no RocksDB store in '/no/where'.* by 'uri'"),
        ({"store": "sqlite:/no/where"}, "There is no SQLite store in '/no/where'.* by 'uri'"),
        ({"uri": "nonsense"}, "must start with http:// or https://"),
        ({"uri": "http://127.0.0.1:1", "timeout_seconds": "soon"}, "'timeout_seconds' must be a"),
    ],
)  # fmt: skip
def test_an_origin_without_a_catalog_is_refused(options: dict[str, str], advice: str) -> None:
    with pytest.raises(morag.BadRequest, match=advice):
        Read(options)


def test_an_unreachable_server_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(CannotRun, match=r"Nothing listens at .* that the driver and all executors"):
        Read({"uri": f"http://127.0.0.1:{port}"})


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"table": "tables"}, "There is no table 'tables'; option 'table' is one of references, "),
        ({"branch": "main"}, "has no option 'branch'; it has: ca_file, partitions, ref"),
        ({"table": "references", "ref": "main"}, "Table 'references' has no option 'ref'"),
        ({"table": "diff"}, "needs the option 'from'"),
        ({"table": "log", "operations": "yes"}, "'operations' must be true or false, not 'yes'"),
        ({"partitions": "0"}, "'partitions' must be a number from 1 to"),
        ({"partitions": "many"}, "'partitions' must be a number from 1 to"),
    ],
)
def test_wrong_options_are_refused(store: str, options: dict[str, str], advice: str) -> None:
    with pytest.raises(CannotRun, match=advice):
        Read({"store": store} | options)


def test_a_server_has_no_table_of_objects() -> None:
    with pytest.raises(CannotRun, match="name the store by the option 'store'"):
        Read({"uri": "http://127.0.0.1:1", "table": "objects"})


def test_a_missing_ref_is_reported(store: str) -> None:
    with pytest.raises(ReferenceNotFound, match="'nowhere' not found"):
        Read({"store": store, "ref": "nowhere"})


def test_a_missing_repository_is_reported(store: str) -> None:
    with pytest.raises(CannotRun, match="holds no such repository"):
        Read({"store": store, "repository_id": "other"})


@pytest.mark.parametrize(
    ("field", "advice"),
    [
        (StructField("colour", StringType()), "has no column 'colour'; it has: key, namespace"),
        (StructField("snapshot_id", StringType()), "is of type bigint, not string"),
    ],
)
def test_unknown_columns_are_refused(store: str, field: StructField, advice: str) -> None:
    with pytest.raises(CannotRun, match=advice):
        MoragDataSource({"store": store}).reader(StructType([field]))


def test_only_the_log_can_be_streamed(store: str) -> None:
    with pytest.raises(CannotRun, match="set the option 'table' to 'log'"):
        MoragDataSource({"store": store}).streamReader(StructType([]))


def test_a_secret_is_not_shown() -> None:
    origin = Origin.of({"uri": "http://127.0.0.1:1", "token": "SECRET"})
    assert origin.token == "SECRET"
    assert "SECRET" not in f"{origin} {origin!r}"


def test_secrets_can_be_given_by_files(store: str, tmp_path: Path) -> None:
    (tmp_path / "store").write_text(f"{store}\n")
    (tmp_path / "token").write_text("hush\n")
    by_file = {"store_file": str(tmp_path / "store"), "token_file": str(tmp_path / "token")}
    assert Origin.of(by_file) == Origin(store=store, token="hush")
    assert list(Read({"store_file": by_file["store_file"], "table": "objects"}))


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"store_file": "/no/where"}, "'store_file' cannot be read on the driver: .*No such file"),
        ({"uri": "http://127.0.0.1:1", "token_file": "/"}, "'token_file' cannot be read"),
        ({"store": "sqlite:x", "store_file": "x"}, "'store' and 'store_file' exclude each other"),
    ],
)
def test_unusable_secret_files_are_refused(options: dict[str, str], advice: str) -> None:
    with pytest.raises(CannotRun, match=advice):
        Origin.of(options)


@pytest.mark.parametrize("scheme", ["sqlite", "rocksdb"])
def test_a_catalog_that_was_opened_to_read_refuses_writes(tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}:{tmp_path / 'catalog'}"
    with opened({"store": url}, write=True) as catalog:
        catalog.references.create_branch("dev", None)
    with opened({"store": url}) as catalog:
        assert [ref.name for ref in catalog.references.list()] == ["dev", "main"]
        for change in (
            lambda: catalog.references.create_branch("other", None),
            lambda: catalog.references.delete("dev"),
            lambda: catalog.commit("main", [Put(ContentKey.of("t"), table(1))], "no"),
        ):
            with pytest.raises(StoreReadOnly):
                change()


def test_a_store_that_another_process_writes_to_cannot_be_written(tmp_path: Path) -> None:
    url = f"rocksdb:{tmp_path / 'catalog'}"
    with (
        opened({"store": url}, write=True),
        pytest.raises(CannotRun, match="name the server by 'uri'"),
        opened({"store": url}, write=True),
    ):
        pass
