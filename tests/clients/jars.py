"""Jars that Spark needs to work on Iceberg tables, downloaded once."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Final

_CACHE: Final = Path(__file__).parents[2] / ".cache" / "spark"


def jar(group: str, name: str, version: str) -> Path:
    kept = _CACHE / f"{name}-{version}.jar"
    if not kept.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as half:
            options = [f"-Dartifact={group}:{name}:{version}", f"-DoutputDirectory={half}"]
            subprocess.run(["mvn", "-q", "-B", "dependency:copy", *options], check=True, cwd=half)
            (Path(half) / kept.name).rename(kept)
    return kept
