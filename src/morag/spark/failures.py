"""What went wrong inside Spark, in the words of whoever said it first."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from morag.spark.errors import CannotRun

if TYPE_CHECKING:
    from collections.abc import Iterator

# The last line of a Python traceback, wherever in Java's own it stands.
_OF_MORAG: Final = re.compile(r"^\s*morag\.[\w.]+\.\w+: (.+)$", re.MULTILINE)
_OF_PYTHON: Final = re.compile(r"^\s*([\w.]*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)


@contextmanager
def in_plain_words() -> Iterator[None]:
    """Whatever Spark reports becomes CannotRun. What our own code said on an executor is all of it:
    the traces around it lead nowhere."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if _was_interrupted(error):
            raise KeyboardInterrupt from error
        raise CannotRun(plain(str(error))) from error


def _was_interrupted(error: BaseException) -> bool:
    """Whether this only went wrong because somebody wanted it to end."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, KeyboardInterrupt):
            return True
        at = at.__cause__ or at.__context__
    return False


def plain(report: str) -> str:
    ours = _OF_MORAG.search(report)
    if ours is not None:
        return ours[1]
    python = _OF_PYTHON.findall(report)
    if python:
        name, message = python[-1]
        return f"Spark failed: {name}: {message}"
    return f"Spark failed: {report.strip().partition(chr(10))[0]}"
