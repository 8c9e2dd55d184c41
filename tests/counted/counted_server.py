"""`morag serve`, in a process that counts what it executes when it is asked to by standard input.

The command `instructions` starts to count, and so does `bytes`; `read` prints the counts since then
and starts again. All of them are answered with a line on standard output.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
import tracemalloc
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from types import CodeType, FrameType

_NOT_COUNTED: Final = (
    *("/asyncio/", "/uvicorn/", "/threading.py", "/selectors.py", "/concurrent/"),
    __file__,
)
"""Code that runs as often as the server happens to wait, whatever the request costs."""

_HEAVY: Final = frozenset(
    {"encode", "encode_into", "decode", "compress", "decompress", "sha256", "update", "crc32"}
)
"""Functions of C extensions whose work grows with their input."""
_HEAVY_MODULES: Final = ("msgspec", "_hashlib", "hashlib", "_sha", "zlib")

_SETTLE_SECONDS: Final = 0.005
"""The server still has work to do when the client has its response."""


class Counter:
    """Counts the bytecode instructions of all threads, and their calls of heavy C functions."""

    def __init__(self) -> None:
        self.is_on = False
        self._is_counted: dict[str, bool] = {}
        self.start()
        self._watch_instructions()
        threading.setprofile(self._call)
        sys.setprofile(self._call)

    def start(self) -> None:
        # The steps of an iterator are atomic: several threads may count.
        self._instructions, self._heavy_calls = itertools.count(), itertools.count()

    def counts(self) -> dict[str, int]:
        return {"instructions": next(self._instructions), "heavy calls": next(self._heavy_calls)}

    if sys.version_info >= (3, 12):  # Tracing skips instructions there.

        def _watch_instructions(self) -> None:
            monitoring = sys.monitoring
            event = monitoring.events.INSTRUCTION
            monitoring.use_tool_id(monitoring.PROFILER_ID, "counted")
            monitoring.register_callback(monitoring.PROFILER_ID, event, self._executed)
            monitoring.set_events(monitoring.PROFILER_ID, event)

        def _executed(self, code: CodeType, offset: int) -> None:
            if self.is_on and self._counts(code):
                next(self._instructions)

    else:

        def _watch_instructions(self) -> None:
            threading.settrace(self._frame)
            sys.settrace(self._frame)

        def _frame(self, frame: FrameType, event: str, argument: Any) -> Any:
            if not self.is_on or not self._counts(frame.f_code):
                return None
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
            return self._executed

        def _executed(self, frame: FrameType, event: str, argument: Any) -> Any:
            if event == "opcode":
                next(self._instructions)
            return self._executed

    def _call(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call" and self.is_on and argument.__name__ in _HEAVY:
            module = argument.__module__ or type(argument.__self__).__module__
            if module.startswith(_HEAVY_MODULES):
                next(self._heavy_calls)

    def _counts(self, code: CodeType) -> bool:
        path = code.co_filename
        counts = self._is_counted.get(path)
        if counts is None:
            counts = not any(part in path for part in _NOT_COUNTED)
            self._is_counted[path] = counts
        return counts


def obey(counter: Counter) -> None:
    """Carry out the commands of the test, in a thread that is not counted."""
    sys.settrace(None)
    sys.setprofile(None)
    held_bytes = 0
    for line in sys.stdin:
        time.sleep(_SETTLE_SECONDS)
        reply: dict[str, int] = {}
        match line.strip():
            case "instructions":
                counter.is_on = True
            case "bytes":
                counter.is_on = False
                tracemalloc.start()
            case "read" if counter.is_on:
                reply = counter.counts()
            case "read":
                reply = {"peak bytes": tracemalloc.get_traced_memory()[1] - held_bytes}
        # Before the reply: the next request may follow at once.
        counter.start()
        tracemalloc.reset_peak()
        held_bytes = tracemalloc.get_traced_memory()[0]
        sys.stdout.write(f"{json.dumps(reply)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    counter = Counter()
    threading.Thread(target=obey, args=(counter,), daemon=True).start()
    # Listings choose the size of their batches by the CPU time that the last one took.
    time.thread_time = lambda: 0.0
    from morag.cli.main import main  # Imported late: it keeps the clock that it finds.

    sys.exit(main(["serve", "--port", "0", "--store", "memory:"]))
