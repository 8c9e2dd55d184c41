"""The error of Spark jobs."""

from __future__ import annotations

from morag.errors import BadRequest


class CannotRun(BadRequest):
    """A job lacks something or was given something unusable: Java, PySpark, a jar, a server.

    The message says how to correct it.
    """
