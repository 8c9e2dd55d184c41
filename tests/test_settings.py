"""Settings explain themselves, and one that cannot be right is refused before a store is opened."""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

import morag
from morag import Settings, config
from morag.errors import BadRequest
from morag.versions.world import World


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
        ("parents_per_commit", 0, "must be a whole number from 1 on, not 0"),
        ("max_incremental_index_bytes", 0, "must be a whole number from 1 on"),
        ("min_index_segment_bytes", 0, "must be a whole number from 1 on"),
        ("max_index_segment_bytes", 0, "must be a whole number from 2 on"),
        ("max_index_segment_bytes", 4095, "must be at least 4096, which is twice min_index_"),
        ("max_inlined_stripes", -1, "must be a whole number from 0 on"),
        ("max_object_bytes", 0, "must be a whole number from 1 on"),
        ("cache_bytes", -1, "must be a whole number from 0 on"),
        ("previous_heads_count", -1, "must be a whole number from 0 on"),
        ("previous_heads_seconds", -1, "must be a whole number from 0 on"),
        ("commit_timeout_ms", -1, "must be a whole number from 0 on"),
        ("commit_retries", -1, "must be a whole number from 0 on"),
        ("retry_sleep_lower_ms", -1, "must be a whole number from 0 on"),
        ("retry_sleep_upper_ms", 4, "must be at least 5, which is retry_sleep_lower_ms"),
        ("retry_sleep_max_ms", 24, "must be at least 25, which is retry_sleep_upper_ms"),
        ("lane_batch", 0, "must be a whole number from 1 on"),
        ("lane_batch", True, "must be a whole number from 1 on, not True"),
        ("lane_batch", 1.5, "must be a whole number from 1 on, not 1.5"),
        ("lane_batch", None, "must be a whole number from 1 on, not None"),
    ],
)
def test_a_setting_that_cannot_be_right(setting: str, value: Any, message: str) -> None:
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


def test_every_number_has_a_bound() -> None:
    numbers = {name for name, kind in Settings.__annotations__.items() if kind.startswith("int")}
    assert numbers == config._LEAST.keys()


def test_every_setting_is_explained() -> None:
    tree = ast.parse(Path(config.__file__).read_text())
    (body,) = (n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Settings")
    explained = {
        field.target.id: text.value.value
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }
    assert tuple(explained) == Settings.__struct_fields__
    assert all(str(sentence).endswith(".") for sentence in explained.values())


def test_each_world_has_its_own_dice() -> None:
    one, other = World(), World()
    assert one.random is not other.random
    assert one.random.random() != other.random.random()
