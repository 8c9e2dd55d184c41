"""Settings: bounds, sources, messages, and the page that explains them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec
import pytest

import morag
from morag import Settings, config
from morag.cli.settings_page import meanings_of_settings, page
from morag.config import ServerSettings
from morag.config_sources import FIELDS, SettingInvalid, load
from morag.errors import BadRequest
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("repository_id", "\ud800", "must be valid Unicode"),
        ("repository_id", None, "must be a text"),
        ("default_branch", "", "Reference name must start with a letter"),
        ("default_branch", "a b", "Reference name must start with a letter"),
        ("default_branch", "deadbeef", "potential commit ID"),
        ("default_branch", None, "Reference name must start with a letter"),
        ("namespace_validation", "no", "must be True or False"),
        ("parents_per_commit", 0, "must be a whole number from 1 to 1024, not 0"),
        ("max_incremental_index_bytes", 0, "must be a whole number from 1 to"),
        ("min_index_segment_bytes", 0, "must be a whole number from 1 to"),
        ("max_index_segment_bytes", 0, "must be a whole number from 2 to"),
        ("max_index_segment_bytes", 4095, "must be at least 4096, which is twice min_index_"),
        ("max_inlined_stripes", -1, "must be a whole number from 0 to"),
        ("max_object_bytes", 0, "must be a whole number from 1 to"),
        ("cache_bytes", -1, "must be a whole number from 0 to"),
        ("previous_heads_count", -1, "must be a whole number from 0 to"),
        ("previous_heads_seconds", -1, "must be a whole number from 0 to"),
        ("commit_timeout_ms", -1, "must be a whole number from 0 to"),
        ("commit_retries", -1, "must be a whole number from 0 to"),
        ("retry_sleep_lower_ms", -1, "must be a whole number from 0 to"),
        ("retry_sleep_upper_ms", 4, "must be at least 5, which is retry_sleep_lower_ms"),
        ("retry_sleep_max_ms", 24, "must be at least 25, which is retry_sleep_upper_ms"),
        ("lane_batch", 0, "must be a whole number from 1 to"),
        ("lane_batch", True, "must be a whole number from 1 to 100000, not True"),
        ("lane_batch", 1.5, "must be a whole number from 1 to 100000, not 1.5"),
        ("lane_batch", None, "must be a whole number from 1 to 100000, not None"),
    ],
)
def test_a_wrong_setting_is_rejected(setting: str, value: Any, message: str) -> None:
    for make in (Settings, lambda **changes: msgspec.structs.replace(Settings(), **changes)):
        with pytest.raises(BadRequest) as raised:
            make(**{setting: value})
        assert str(raised.value).startswith(f"Setting {setting}")
        assert message in str(raised.value)


def test_settings_at_their_limits_work() -> None:
    least = Settings(
        parents_per_commit=1,
        max_incremental_index_bytes=1,
        min_index_segment_bytes=1,
        max_index_segment_bytes=2,
        max_inlined_stripes=0,
        cache_bytes=0,
        previous_heads_count=0,
        previous_heads_seconds=0,
        commit_timeout_ms=0,
        commit_retries=0,
        retry_sleep_lower_ms=0,
        retry_sleep_upper_ms=0,
        retry_sleep_max_ms=0,
        lane_batch=1,
    )
    with morag.open("memory:", least) as repo:
        for number in range(20):
            key = morag.ContentKey.of(f"n{number}")
            repo.commit("main", [morag.Put(key, morag.Namespace.of(f"n{number}"))], "n")
        assert len(list(repo.contents.keys("main"))) == 20


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("host", "", "must not be empty"),
        ("store", None, "must be a text"),
        ("port", 65_536, "must be a whole number from 0 to 65535, not 65536"),
        ("port", -1, "must be a whole number from 0 to"),
        ("workers", 0, "must be a whole number from 1 to"),
        ("threads", 0, "must be a whole number from 1 to 1024, not 0"),
        ("threads", 1_000_000, "must be a whole number from 1 to 1024, not 1000000"),
        ("tls_key", "key.pem", "needs tls_cert"),
        ("cors_origins", ("ui.example.com",), "must hold origins such as https://"),
        ("cors_origins", ("https://ui.example.com/",), "must hold origins such as https://"),
        ("cors_origins", "https://ui.example.com", "must be a list"),
        ("allowed_hosts", "lake.example.com", "must be a list"),
        ("allowed_hosts", ("http://lake.example.com",), "must hold names such as lake"),
        ("allowed_hosts", ("lake.example.com:80",), "must hold names such as lake"),
        ("allowed_hosts", ("lake.*",), "must hold names such as lake"),
        ("trusted_proxies", "10.0.0.1", "must be a list"),
        ("trusted_proxies", ("proxy.example.com",), "must hold addresses such as 10.0.0.1"),
        ("trusted_proxies", ("10.0.0.1/8",), "must hold addresses such as 10.0.0.1"),
        ("access_log", "xml", "must be off, text or json"),
        ("stack_traces", "yes", "must be True or False"),
        ("max_request_bytes", 0, "must be a whole number from 1 to"),
        ("max_head_bytes", 1023, "must be a whole number from 1024 to"),
        ("max_connections", 0, "must be a whole number from 1 to"),
        ("idle_timeout_seconds", 0, "must be a number above 0"),
        ("slow_client_seconds", float("nan"), "must be a number above 0"),
        ("shutdown_seconds", float("inf"), "must be a number above 0, and at most 31536000"),
        ("gzip_min_bytes", -1, "must be a whole number from 0 to"),
    ],
)
def test_a_wrong_server_setting_is_rejected(setting: str, value: Any, message: str) -> None:
    with pytest.raises(BadRequest, match=f"Setting {setting} {message}"):
        ServerSettings(**{setting: value})


def test_every_number_has_a_bound() -> None:
    numbers = {name for name, kind in Settings.__annotations__.items() if kind.startswith("int")}
    assert numbers == config.KERNEL_BOUNDS.keys()
    kinds = ServerSettings.__annotations__
    assert {name for name, kind in kinds.items() if kind == "int"} == config.SERVER_BOUNDS.keys()
    assert {name for name, kind in kinds.items() if kind == "float"} == set(config.SECONDS)


def test_every_setting_is_explained() -> None:
    meanings = meanings_of_settings()
    assert tuple(meanings) == Settings.__struct_fields__ + ServerSettings.__struct_fields__
    assert all(sentence.endswith(".") for sentence in meanings.values())


def test_docs_settings_md_is_up_to_date() -> None:
    """To regenerate it: `python -m morag.cli.settings_page > docs/settings.md`."""
    assert (DOCS / "settings.md").read_text() == page()


def test_kernel_and_server_settings_share_no_name() -> None:
    names = Settings.__struct_fields__ + ServerSettings.__struct_fields__
    assert sorted(names) == sorted(FIELDS)


VALUES: dict[Any, tuple[str, str, Any]] = {
    bool: ("true", "true", True),
    int: ("1024", "1024", 1024),
    float: ("2.5", "2.5", 2.5),
    str: ("some", '"some"', "some"),
}
"""By type: the value as text, in TOML, and as the setting."""
SPECIAL: dict[str, tuple[str, str, Any]] = {
    "cors_origins": (
        "https://a, https://b",
        '["https://a", "https://b"]',
        ("https://a", "https://b"),
    ),
    "allowed_hosts": ("a.b, *.c, ::1", '["a.b", "*.c", "::1"]', ("a.b", "*.c", "::1")),
    "trusted_proxies": ("10.0.0.1, ::/8", '["10.0.0.1", "::/8"]', ("10.0.0.1", "::/8")),
    "access_log": ("json", '"json"', "json"),
    "commit_retries": ("7", "7", 7),
    "store": ("memory:", '"memory:"', "memory:"),
    "retry_sleep_lower_ms": ("6", "6", 6),
    "retry_sleep_upper_ms": ("26", "26", 26),
    "min_index_segment_bytes": ("2049", "2049", 2049),
    "max_index_segment_bytes": ("65535", "65535", 65535),
    "namespace_validation": ("no", "false", False),
}


@pytest.mark.parametrize("name", FIELDS)
def test_every_setting_can_come_from_a_flag_a_variable_or_the_file(
    name: str, tmp_path: Path
) -> None:
    field = FIELDS[name]
    text, toml, value = SPECIAL.get(name) or VALUES[get_type_hints(field.owner)[name]]
    others: dict[str, str] = {"tls_cert": "cert.pem"} if name == "tls_key" else {}

    def found(flags: Mapping[str, str], environment: Mapping[str, str], file: str) -> object:
        (tmp_path / "morag.toml").write_text(file)
        flags = {**others, **flags}
        loaded = load(flags, environment=environment, directory=tmp_path)
        return getattr(loaded.server if field.owner is ServerSettings else loaded.kernel, name)

    assert found({}, {}, "") == field.default
    assert found({name: text}, {}, "") == value
    assert found({}, {field.variable: text}, "") == value
    assert found({}, {}, f"{name} = {toml}") == value


def test_flags_override_the_environment_which_overrides_the_file(tmp_path: Path) -> None:
    (tmp_path / "morag.toml").write_text("port = 1\nthreads = 1\nlane_batch = 1")
    environment = {"MORAG_PORT": "2", "MORAG_THREADS": "2", "PATH": "x"}
    loaded = load({"port": "3"}, environment=environment, directory=tmp_path)
    assert loaded.server == ServerSettings(port=3, threads=2)
    assert loaded.kernel == Settings(lane_batch=1)


def test_a_flag_or_a_variable_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "morag.toml").write_text("port = 1")
    for name, port in (("a.toml", 2), ("b.toml", 3)):
        (tmp_path / name).write_text(f"port = {port}")
    named = {"MORAG_CONFIG": str(tmp_path / "a.toml")}
    assert load({}, environment=named, directory=tmp_path).server.port == 2
    flag = str(tmp_path / "b.toml")
    assert load({}, flag, environment=named, directory=tmp_path).server.port == 3


@pytest.mark.parametrize(
    ("environment", "file", "message"),
    [
        ({"MORAG_PROT": "1"}, "", "no setting MORAG_PROT (did you mean MORAG_PORT?); unset it"),
        ({"MORAG_": "1"}, "", "no setting MORAG_"),
        ({"MORAG_PORT": "x"}, "", "MORAG_PORT must be a whole number, not 'x'"),
        ({"MORAG_PORT": ""}, "", "MORAG_PORT must be a whole number, not ''"),
        ({"MORAG_PORT": "-1"}, "", "from 0 to 65535, not -1 (set by MORAG_PORT)"),
        ({"MORAG_STACK_TRACES": "maybe"}, "", "MORAG_STACK_TRACES must be true or false"),
        ({"MORAG_IDLE_TIMEOUT_SECONDS": "x"}, "", "must be a number, not 'x'"),
        ({"MORAG_CONFIG": "missing.toml"}, "", "There is no file 'missing.toml'"),
        ({}, "prot = 1", "no setting prot (did you mean port?); correct it in"),
        ({}, "[server]\nport = 1", "remove the line [server] from"),
        ({}, "[nope]\nx = 1", "Settings are not in tables: remove the line [nope]"),
        ({}, "threads = 1000000", "from 1 to 1024, not 1000000 (set by"),
        ({}, "port = '1'", "must be a whole number, not '1'"),
        ({}, "port = true", "must be a whole number, not True"),
        ({}, "stack_traces = 1", "must be true or false, not 1"),
        ({}, "cors_origins = 'x'", "must be a list of texts"),
        ({}, "access_log = 'xml'", "must be off, text or json, not 'xml' (set by"),
        ({}, "max_index_segment_bytes = 4095", "which is twice min_index_segment_bytes (set by"),
        ({}, "port = ", "Cannot read settings from"),
    ],
)
def test_an_error_names_the_source_of_the_setting(
    environment: dict[str, str], file: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "morag.toml").write_text(file)
    with pytest.raises(SettingInvalid, match=re.escape(message)):
        load({}, environment=environment, directory=tmp_path)


SECRET = "postgres://u:pw@h/db"


@pytest.mark.parametrize(
    ("flags", "file"),
    [
        ({"port": SECRET}, ""),
        ({"idle_timeout_seconds": SECRET}, ""),
        ({"stack_traces": SECRET}, ""),
        ({"access_log": SECRET}, ""),
        ({"cors_origins": SECRET + "/"}, ""),
        ({}, f"store = ['{SECRET}']"),
        ({}, f"[store]\nurl = '{SECRET}'"),
        ({}, f"port = '{SECRET}'"),
        ({}, f"'{SECRET}' = 1"),
        ({}, f"['{SECRET}']"),
    ],
)
def test_messages_show_no_password(flags: dict[str, str], file: str, tmp_path: Path) -> None:
    (tmp_path / "morag.toml").write_text(file)
    with pytest.raises(SettingInvalid, match=r"//u:\*\*\*@h") as raised:
        load(flags, environment={}, directory=tmp_path)
    assert "pw" not in str(raised.value)


def test_a_password_given_as_the_file_name_is_not_shown() -> None:
    with pytest.raises(SettingInvalid, match=r"no file 'postgres://u:\*\*\*@h/db'"):
        load({}, SECRET, environment={})
    with pytest.raises(SettingInvalid, match=r"no file 'postgres://u:\*\*\*@h/db'"):
        load({}, environment={"MORAG_CONFIG": SECRET})


def test_each_world_has_its_own_random_numbers() -> None:
    one, other = World(), World()
    assert one.random is not other.random
    assert one.random.random() != other.random.random()
