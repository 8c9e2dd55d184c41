"""Runs what `morag generate` measures: shows its progress, and prints the figures at the end."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from msgspec import json

from morag.cli.main import FAILED
from morag.errors import MoragError
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from morag.generate.measuring import Figures, Measurements

_LINE: Final = "{:24} {:>9} {:>7} {:>10} {:>9} {:>9} {:>9} {:>9}\n"
_HEAD: Final = ("request", "count", "failed", "rate/s", "p50 ms", "p95 ms", "p99 ms", "max ms")
_EVERY_SECONDS: Final = 1.0
_EVERY_SECONDS_IN_FILES: Final = 10.0
_REAL: Final = World()


def measured(measurements: Measurements, run: Callable[[], None], *, as_json: bool) -> int:
    """Run, and print the figures in any case: also of a run that failed or was interrupted."""
    measurements.start()
    try:
        run()
    except KeyboardInterrupt:
        sys.stderr.write("morag: stopped; these are the figures so far\n")
        code = FAILED
    except MoragError as error:
        sys.stderr.write(f"morag: {error}\n")
        code = FAILED
    else:
        code = 0
    measurements.stop()
    figures = measurements.figures()
    sys.stdout.write(json.encode(figures).decode() + "\n" if as_json else figures_text(figures))
    return FAILED if figures.failures else code


def figures_text(figures: Figures) -> str:
    lines = [
        f"{figures.commits:,} commits in {figures.seconds:.1f} s: "
        f"{figures.commits_per_second:,.1f} commits/s, {figures.puts_per_second:,.1f} puts/s, "
        f"{figures.retries} retries, {figures.failures} failures\n",
    ]
    if figures.requests:
        lines.append(_LINE.format(*_HEAD))
    for each in figures.requests:
        millis = (each.p50_millis, each.p95_millis, each.p99_millis, each.max_millis)
        cells = ("-" if value is None else f"{value:.2f}" for value in millis)
        lines.append(
            _LINE.format(each.name, each.succeeded, each.failed, f"{each.per_second:,.1f}", *cells)
        )
    lines += [f"failed: {text}\n" for text in figures.shown_failures]
    return "".join(lines)


@contextmanager
def progress_line(
    measurements: Measurements, total: int | None, *, is_quiet: bool, world: World = _REAL
) -> Iterator[Callable[[], None]]:
    """A function that shows the commits so far on standard error, not more often than needed."""
    changes = sys.stderr.isatty()
    pause = _EVERY_SECONDS if changes else _EVERY_SECONDS_IN_FILES
    now = world.monotonic
    shown = began = now()

    def show() -> None:
        nonlocal shown
        if is_quiet or now() - shown < pause:
            return
        shown = now()
        of = "" if total is None else f" of {total:,}"
        rate = measurements.commits / (shown - began)
        line = f"{measurements.commits:,}{of} commits, {rate:,.1f}/s"
        sys.stderr.write(f"\r\x1b[2K{line}" if changes else f"{line}\n")
        sys.stderr.flush()

    try:
        yield show
    finally:
        if changes and shown != began:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
