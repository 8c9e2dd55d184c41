"""Configuration of all tests: Hypothesis, the sample of the day, and groups that share a worker."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings

from tests import sampling

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

# The time of an example depends on the load of the machine. Benchmarks measure time.
settings.register_profile("morag", deadline=None)
settings.load_profile("morag")

_ROOT: Final = Path(__file__).parents[1]
_ON_ALL_DATABASES: Final = ("tests/stores/test_every_engine.py", "tests/stores/test_together.py")
_FIRST_PARAMETER: Final = re.compile(r"\[(\w+)")
_SERVER: Final = re.compile(r'^SERVER(?:: Final)? = "(\w+)"$', re.MULTILINE)


def pytest_configure(config: pytest.Config) -> None:
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = sampling.hypothesis_seed()


def pytest_report_header() -> list[str]:
    return sampling.report()


@pytest.hookimpl(optionalhook=True)  # The environments of other clients lack pytest-xdist.
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # Otherwise groups of few but slow tests start last.

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types.
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    return ByGroup(config, log)


def _group(nodeid: str) -> str:
    """Tests of one group run in one worker and share its fixtures, such as a server.

    A group is a file, or all tests that use one database server.
    """
    file, _, test = nodeid.partition("::")
    parameter = _FIRST_PARAMETER.search(test) if file in _ON_ALL_DATABASES else None
    database = parameter[1] if parameter else _server(file)
    return file if database is None else f"tests on {database}"


@cache
def _server(file: str) -> str | None:
    """The database that a test file names as its `SERVER`."""
    declared = _SERVER.search((_ROOT / file).read_text())
    return declared[1] if declared else None
