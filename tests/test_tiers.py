"""The table of test tiers in CONTRIBUTING.md agrees with Makefile, marks and .ci/run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

_ROOT: Final = Path(__file__).parents[1]
_LIMIT_MINUTES: Final = 80


class Tier(NamedTuple):
    name: str
    command: str
    mark: str
    promise: str
    minutes: str


_ROWS: Final = re.findall(
    r"^\|" + r" (.*?) ?\|" * len(Tier._fields) + "$",
    (_ROOT / "CONTRIBUTING.md").read_text(),
    re.MULTILINE,
)
_TIERS: Final = [Tier(*row) for row in _ROWS if row[0] != "tier"]


def test_budgets_leave_room_below_the_limit() -> None:
    assert sum(int(tier.minutes) for tier in _TIERS) <= _LIMIT_MINUTES


def test_every_stage_of_the_verification_has_a_budget() -> None:
    stages = re.findall(r"^stage ([a-z-]+)", (_ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    commands = [tier.command.strip("`") for tier in _TIERS if tier.command]
    assert [f"make {stage}" for stage in stages] == commands


def test_every_command_is_a_target() -> None:
    targets = re.findall(r"^([a-z-]+):.* ## ", (_ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {tier.command.strip("`") for tier in _TIERS if tier.command} <= {
        f"make {target}" for target in targets
    }


def test_every_mark_belongs_to_a_tier() -> None:
    text = (_ROOT / "pyproject.toml").read_text()
    marks = set(re.findall(r'^    "([a-z0-9]+): .*run by', text, re.MULTILINE))
    assert marks
    assert marks == {mark for tier in _TIERS for mark in re.findall(r"`(\w+)`", tier.mark)}
