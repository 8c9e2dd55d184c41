"""Estimates the work for a regular expression from its text.

The library matches in time linear in the text, but compiles the pattern again for every item, and
counted repetitions multiply the states to compile.
"""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|$)"
    r"|(?P<unicode>\\[pP](?:\{[^}]*\}|.)?)"
    r"|\\."
    r"|(?P<class>\[\^?\]?(?:\\.|\[:[^\]]*:\]|[^\]\\])*\]?)"
    r"|\{(?P<least>\d+)(?:,(?P<most>\d*))?\}"
    r"|(?P<char>.)",
    re.DOTALL,
)
_WIDE: Final = 8
"""The states of a class of nearly all characters, which have one to four bytes of UTF-8."""
_UNICODE: Final = 1500
"""The states of a class such as `\\pL`, which has hundreds of ranges."""


def pattern_weight(pattern: str) -> int:
    """About how many states the pattern has after its repetitions are expanded."""
    groups = [0]
    last = 0
    for token in _TOKEN.finditer(pattern):
        char = token["char"]
        if char == "(":
            groups.append(0)
            last = 0
            continue
        if char == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
            continue
        if token["least"] is not None:
            times = max(int(token["least"][:6]), int((token["most"] or "0")[:6]), 1)
            groups[-1] += last * (times - 1)
            last *= times
            continue
        if token["quoted"] is not None:
            last = len(token["quoted"])
        elif token["unicode"] is not None:
            last = _UNICODE
        elif token["class"] is not None:
            last = _class_weight(token["class"])
        else:
            last = _WIDE if char == "." else 1
        groups[-1] += last
    return sum(groups)


def _class_weight(text: str) -> int:
    if "\\p" in text or "\\P" in text:
        return _UNICODE
    return _WIDE if text.startswith("[^") or not text.isascii() else 2
