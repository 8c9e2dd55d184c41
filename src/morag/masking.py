"""Taking passwords out of what is shown to people."""

from __future__ import annotations

import re
from typing import Final

# Both rather hide too much than too little: an unescaped password may contain any character.
_PASSWORD: Final = re.compile(r"(://[^:]*):.*@", re.DOTALL)
_SECRET_OPTION: Final = re.compile(
    r"((?:(?:pass|pwd|token|secret|credential)[\w.-]*|key|authMechanismProperties)=)[^&]*",
    re.IGNORECASE,
)


def masked(url: str) -> str:
    """The URL with its passwords and tokens hidden, fit for logs and messages."""
    return _PASSWORD.sub(r"\1:***@", _SECRET_OPTION.sub(r"\1***", url))
