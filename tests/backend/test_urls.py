"""Store URLs: the backends they open, and the messages for invalid ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

import morag
from morag import Settings
from morag.backend.memory import MemoryBackend, open_memory
from morag.backend.rocksdb.backend import RocksDBBackend, open_rocksdb
from morag.backend.sqlite.backend import SQLiteBackend, open_sqlite
from morag.backend.urls import StoreUrl, open_backend
from morag.errors import StoreUrlInvalid
from morag.masking import hiding, masked

if TYPE_CHECKING:
    from pathlib import Path


def test_a_url_is_parsed() -> None:
    url = StoreUrl.parse("rocksdb:./some dir/data?sync=off&x=")
    assert (url.scheme, url.rest) == ("rocksdb", "./some dir/data")
    assert url.options == {"sync": "off", "x": ""}
    assert StoreUrl.parse("memory:").rest == ""
    assert StoreUrl.parse("postgresql://u@h/db").rest == "//u@h/db"


@pytest.mark.parametrize("text", ["", "data", "./data", "/data", "Rocksdb:x", ":x"])
def test_an_invalid_url_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(StoreUrlInvalid, match="rocksdb:"):
        StoreUrl.parse(text)


def test_a_flag_is_on_or_off() -> None:
    assert StoreUrl.parse("x:?sync=on").flag("sync", default=False)
    assert not StoreUrl.parse("x:?sync=off").flag("sync", default=True)
    assert StoreUrl.parse("x:").flag("sync", default=True)
    assert not StoreUrl.parse("x:").flag("sync", default=False)
    with pytest.raises(StoreUrlInvalid, match="'sync'"):
        StoreUrl.parse("x:?sync=maybe").flag("sync", default=True)


def test_passwords_are_masked() -> None:
    secret = "postgresql://user:secret@host:5432/db?x=y"
    assert masked(secret) == "postgresql://user:***@host:5432/db?x=y"
    assert str(StoreUrl.parse(secret)) == masked(secret)
    assert masked("postgresql://host:5432/db") == "postgresql://host:5432/db"
    assert masked("rocksdb:./data") == "rocksdb:./data"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:SECRET@host/db",
        "postgresql://user:SEC@RET@host/db",
        "postgresql://user:SEC/RET@host/db",
        "postgresql://user:SEC?RET@host/db",
        "postgresql://user:SEC:RET@host/db",
        "postgresql://user:SEC#\nRET@host/db",
        "postgresql://me@corp:SECRET@host/db",
        "postgresql://:SECRET@host/db",
        "postgresql://host/db?password=SECRET",
        "postgresql://host/db?user=me&password=SEC@RET&sync=on",
        "postgresql://user:SEC@RET@host/db?password=SEC@RET",
        "postgresql://host/db?Password=SECRET",
        "postgresql://host/db?sslpassword=SECRET",
        "postgresql://host/db?passwd=SEC RET",
        "postgresql://host/db?pwd=SECRET",
        "dynamodb:table?access_key=SECRET",
        "dynamodb:table?session_token=SECRET&x=y",
        "dynamodb:table?token=SEC=RET",
        "dynamodb:table?secret=SECRET",
        "dynamodb:table?secret-access-key=SECRET",
        "dynamodb:table?credentials=SECRET",
        "mongodb://host/db?authMechanismProperties=AWS_SESSION_TOKEN:SECRET",
        "mongodb://host/db?authmechanismproperties=SERVICE_NAME%3Ax%2CAWS_SESSION_TOKEN%3ASECRET&a=b",
    ],
)
def test_no_part_of_a_secret_is_shown(url: str) -> None:
    hidden = masked(url)
    assert "***" in hidden
    assert not re.search("SEC|RET", hidden)
    assert hidden.startswith(url.partition(":")[0])
    assert masked(hidden) == hidden


def test_a_token_among_properties_is_hidden_in_any_text() -> None:
    token = "AWS_SESSION_TOKEN:a/b"
    hide = hiding("mongodb://h/d?authMechanismProperties=AWS_SESSION_TOKEN%3Aa%2Fb&tls=true")
    assert hide(f"refused {token} over tls=true") == "refused *** over tls=true"


def test_text_without_secrets_is_not_masked() -> None:
    for url in (
        "postgresql://user@host:5432/db?keyspace=a&sync=on",
        "sqlite:./me@home/morag.db?sync=off",
        "memory:",
    ):
        assert masked(url) == url


def test_an_error_shows_no_secret() -> None:
    with pytest.raises(StoreUrlInvalid) as raised:
        open_backend("memory:?password=SECRET")
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize("scheme", ["memory", "rocksdb", "sqlite"])
def test_an_unknown_option_is_refused(scheme: str, tmp_path: Path) -> None:
    place = "" if scheme == "memory" else tmp_path / "store"
    with pytest.raises(StoreUrlInvalid, match="'snyc'"):
        open_backend(f"{scheme}:{place}?snyc=off")
    assert not (tmp_path / "store").exists()


def test_the_error_for_an_unknown_scheme_lists_the_known_ones() -> None:
    with pytest.raises(StoreUrlInvalid, match=r"memory, .*rocksdb, .*sqlite"):
        open_backend("paper:x")


def test_each_scheme_opens_its_backend(tmp_path: Path) -> None:
    for url, kind in (
        ("memory:", MemoryBackend),
        (f"rocksdb:{tmp_path / 'rocks'}?sync=off", RocksDBBackend),
        (f"sqlite:{tmp_path / 'morag.db'}?sync=on", SQLiteBackend),
    ):
        backend = open_backend(url)
        assert isinstance(backend, kind)
        backend.close()


def test_a_memory_store_has_no_path() -> None:
    with pytest.raises(StoreUrlInvalid, match="names a location"):
        open_memory(StoreUrl.parse("memory:x"))


@pytest.mark.parametrize("scheme", ["rocksdb", "sqlite"])
def test_a_store_on_disk_has_no_host(scheme: str) -> None:
    with pytest.raises(StoreUrlInvalid) as raised:
        open_backend(f"{scheme}://user:secret@machine/data")
    assert "secret" not in str(raised.value)


def test_a_store_on_disk_needs_a_path() -> None:
    with pytest.raises(StoreUrlInvalid, match="names no path"):
        open_rocksdb(StoreUrl.parse("rocksdb:"))
    with pytest.raises(StoreUrlInvalid, match="names no path"):
        open_sqlite(StoreUrl.parse("sqlite:"))


def test_a_url_names_the_repository(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'store.db'}"
    with morag.open(f"{url}?repository=one&sync=off") as one:
        one.references.create_branch("only-in-one", "main")
        assert one.settings.repository_id == "one"
    with morag.open(url, Settings(repository_id="one")) as same:
        assert "only-in-one" in [ref.name for ref in same.references.list()]
    with morag.open(url) as other:
        assert [ref.name for ref in other.references.list()] == ["main"]


def test_a_url_and_a_setting_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(StoreUrlInvalid, match="different repositories"):
        morag.open("memory:?repository=one", Settings(repository_id="two"))
    with morag.open("memory:?repository=one", Settings(repository_id="one")) as same:
        assert same.settings.repository_id == "one"


def test_a_number_must_be_positive_and_within_its_limit() -> None:
    assert StoreUrl.parse("x:").number("seconds", 2.5) == 2.5
    assert StoreUrl.parse("x:?seconds=10").number("seconds", 2.5, most=10) == 10
    for text in ("0", "-1", "soon", "", "inf", "nan", "11"):
        with pytest.raises(StoreUrlInvalid, match=r"'seconds'.* above 0 and up to 10"):
            StoreUrl.parse(f"x:?seconds={text}").number("seconds", 2.5, most=10)
    with pytest.raises(StoreUrlInvalid, match=r"above 0$"):
        StoreUrl.parse("x:?seconds=inf").number("seconds", 2.5)


@pytest.mark.parametrize("character", "@/?#")
def test_a_password_that_is_not_escaped_is_refused_and_not_shown(character: str) -> None:
    for place in ("host/lake", "host:5432/lake?sslmode=require"):
        with pytest.raises(StoreUrlInvalid, match="as %40 %2F %3F %23") as refusal:
            StoreUrl.parse(f"postgresql://me:one{character}two@{place}")
        assert not {"one", "two"} & set(re.findall(r"\w+", str(refusal.value)))


def test_a_path_may_have_any_character() -> None:
    assert StoreUrl.parse("rocksdb:/a@b/c#d").rest == "/a@b/c#d"
    assert StoreUrl.parse("postgresql://me:one%40two@host/lake").rest == "//me:one%40two@host/lake"
