"""What keeps a job from running, said so that it can be mended."""

from __future__ import annotations

from morag.errors import BadRequest


class CannotRun(BadRequest):
    """Something that a job needs is missing or does not fit: Java, PySpark, a jar, a server."""
