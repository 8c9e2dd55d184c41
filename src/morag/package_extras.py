"""How to install an extra of this package, for messages about a missing one."""

from __future__ import annotations

import re
from importlib.metadata import requires
from typing import Final

_REQUIREMENT: Final = re.compile(r"([\w.-]+).*; *extra *== *['\"]([\w-]+)['\"]")


def install_advice(extra: str) -> str:
    """The commands that install an extra: from an index, and in a clone of the repository."""
    return f"pip install 'morag[{extra}]', or in a clone: .venv/bin/pip install -e '.[{extra}]'"


def packages_of(extra: str) -> list[str]:
    """The packages that an extra installs, by the names that an index has them under."""
    found = (_REQUIREMENT.match(text) for text in requires("morag") or ())
    return [match[1] for match in found if match is not None and match[2] == extra]
