"""`morag generate`: generates contents on a running server, Morag or Nessie, and measures it."""

from __future__ import annotations

from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING, Final

from morag.cli import generate_simulate, generate_tools
from morag.cli.generate_flags import (
    add_history_flags,
    add_report_flags,
    add_server_flags,
    client_of,
    count,
    duration_seconds,
    verbose_note,
)
from morag.cli.generate_report import measured, progress_line
from morag.generate.committing import Generator
from morag.generate.generate_options import GenerateOptions
from morag.generate.measuring import Measurements
from morag.model.times import SECOND_NANOS
from morag.versions.world import World

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

_SEED_BITS: Final = 64
_REAL: Final = World()


def configure(parser: argparse.ArgumentParser, explain: bool) -> None:
    parser.epilog = (
        "Generated contents point to files that do not exist: use test catalogs, because garbage\n"
        "collection refuses to work on a catalog whose metadata it cannot read.\n"
        "docs/generate.md explains key patterns, the tools and the simulations."
    )
    parser.set_defaults(tool=_generate)
    add_server_flags(parser)
    add_history_flags(parser)
    parser.add_argument(
        "-d",
        "--duration",
        type=duration_seconds,
        metavar="TIME",
        help="spread the commits evenly over this time, like 90s or PT1M30S [as fast as it goes]",
    )
    parser.add_argument(
        "--workers", type=count, default=1, metavar="N", help="commits at a time [%(default)s]"
    )
    parser.add_argument(
        "--continue-on-error", action="store_true", help="go on if a commit fails [stop]"
    )
    add_report_flags(parser)
    tools = parser.add_subparsers(metavar="TOOL", title="tools", help="[generate contents]")
    generate_tools.add_tools(tools)
    generate_simulate.add_tools(tools)


def run(arguments: argparse.Namespace) -> int:
    tool: Callable[[argparse.Namespace], int] = arguments.tool
    return tool(arguments)


def history_options(arguments: argparse.Namespace, world: World = _REAL) -> GenerateOptions:
    """The options of `add_history_flags`. With a seed, names have it instead of the time."""
    seed: int | None = arguments.seed
    if seed is None:
        seed = world.random.getrandbits(_SEED_BITS)
        seconds = world.clock_nanos() // SECOND_NANOS
        run = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d-%H-%M-%S}"
    else:
        run = f"seed-{seed}"
    return GenerateOptions(
        seed=seed,
        run=run,
        commits=arguments.num_commits,
        branches=arguments.num_branches,
        tag_probability=arguments.tag_probability,
        default_branch=arguments.default_branch,
        tables=arguments.num_tables,
        type=arguments.type,
        key_pattern=arguments.key_pattern,
        puts_per_commit=arguments.puts_per_commit,
        author=arguments.author,
        message=arguments.message,
    )


def _generate(arguments: argparse.Namespace) -> int:
    options = history_options(arguments)
    measurements = Measurements()
    with client_of(arguments, connections=arguments.workers) as client:
        generator = Generator(
            client,
            options,
            measurements,
            continue_on_error=arguments.continue_on_error,
            note=verbose_note(arguments),
        )
        generator.prepare()
        quiet = arguments.quiet or arguments.verbose
        with progress_line(measurements, options.commits, is_quiet=quiet) as look:
            return measured(
                measurements,
                lambda: generator.run(
                    Event(), workers=arguments.workers, seconds=arguments.duration or 0.0, look=look
                ),
                as_json=arguments.json,
            )
