"""`make spark` installs what jobs on Spark need, in the tested versions, and no more."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

from morag.package_extras import packages_of

_ROOT: Final = Path(__file__).parents[1]
_PIN: Final = re.compile(r"^([\w.-]+)==([\w.]+)", re.MULTILINE)


def _pins(name: str) -> dict[str, str]:
    return dict(_PIN.findall((_ROOT / "requirements" / name).read_text()))


def test_the_lock_for_spark_has_the_tested_versions_and_no_tools() -> None:
    spark, dev = _pins("spark.txt"), _pins("dev.txt")
    assert set(packages_of("spark")) <= spark.keys()
    assert spark.items() <= dev.items()
    assert spark.keys().isdisjoint({"pytest", "mypy", "ruff", "boto3", "psycopg"})


def test_make_spark_installs_that_lock_alone_and_says_so() -> None:
    planned = subprocess.run(
        ["make", "--dry-run", "--always-make", "spark"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "-r requirements/spark.txt" in planned
    assert "requirements/dev.txt" not in planned
    assert "Installing PySpark, PyArrow, PyIceberg and a Java" in planned
