"""`morag generate simulate`: plays kinds of load with many users, and measures them."""

from __future__ import annotations

import argparse
from threading import Event
from typing import TYPE_CHECKING, Any

from morag.cli.generate_flags import (
    add_report_flags,
    add_server_flags,
    client_of,
    count,
    count_or_zero,
    duration_seconds,
    rate,
)
from morag.cli.generate_report import measured, progress_line
from morag.generate.measuring import Measurements
from morag.generate.simulations.commit_to_branch import (
    BranchMode,
    CommitToBranch,
    CommitToBranchParameters,
)
from morag.generate.simulations.create_many_branches import (
    CreateManyBranches,
    CreateManyBranchesParameters,
)
from morag.generate.simulations.key_list_spilling import (
    KeyListSpilling,
    KeyListSpillingParameters,
)
from morag.generate.simulations.mixed_workloads import (
    MixedWorkloads,
    MixedWorkloadsParameters,
    Population,
)
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.client import Client
    from morag.generate.simulations.simulation import Simulation


def add_tools(tools: Any) -> None:
    parser: argparse.ArgumentParser = tools.add_parser(
        "simulate",
        help="play a kind of load with many users, and measure it",
        description="Play a kind of load with many users, and measure it. The branches stay.",
        allow_abbrev=False,
    )
    kinds = parser.add_subparsers(metavar="SIMULATION", required=True)
    _add_commit_to_branch(kinds)
    _add_create_many_branches(kinds)
    _add_key_list_spilling(kinds)
    _add_mixed_workloads(kinds)


def _add_commit_to_branch(kinds: Any) -> None:
    parser = _kind(kinds, "commit-to-branch", "users that update tables")
    parser.epilog = "\n".join(
        ["Modes:", *(f"  {mode.name:30} {mode.value}" for mode in BranchMode)]
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    _add_users(parser)
    parser.add_argument("--branch", help="the branch, or the prefix of branches [commits-TIME]")
    parser.add_argument(
        "--mode",
        type=str.upper,
        choices=[mode.name for mode in BranchMode],
        default=BranchMode.BRANCH_PER_USER_SINGLE_TABLE.name,
        metavar="MODE",
        help="who updates which tables where [%(default)s]",
    )
    parser.add_argument("--table-prefix", metavar="NAME", help="of all tables [someTableTIME]")
    _add_count(parser, "--tables", 250, "how many random tables there are")
    parser.add_argument("--unique-tables", action="store_true", help="create, and never update")
    parser.add_argument(
        "--commits",
        type=count_or_zero,
        metavar="N",
        help="of each user; 0 without a limit [100; with --duration 0]",
    )
    _add_duration(parser, None)

    def make(client: Client, measurements: Measurements, given: argparse.Namespace) -> Simulation:
        commits = given.commits
        if commits is None:
            commits = 0 if given.duration else 100
        parameters = CommitToBranchParameters(
            branch=given.branch or f"commits-{_now_millis()}",
            table_prefix=given.table_prefix or f"someTable{_now_millis()}",
            mode=BranchMode[given.mode],
            tables=given.tables,
            unique_tables=given.unique_tables,
            users=given.users,
            rate=given.rate,
            commits=commits,
            duration_seconds=given.duration or 0.0,
            seed=given.seed,
        )
        return CommitToBranch(client, measurements, parameters)

    parser.set_defaults(make=make)


def _add_create_many_branches(kinds: Any) -> None:
    parser = _kind(kinds, "create-many-branches", "users that create branches")
    _add_users(parser)
    parser.add_argument("--branch", help="the prefix of the branches [branch-TIME]")
    _add_count(parser, "--branches", 100, "of each user")

    def make(client: Client, measurements: Measurements, given: argparse.Namespace) -> Simulation:
        parameters = CreateManyBranchesParameters(
            prefix=given.branch or f"branch-{_now_millis()}",
            branches=given.branches,
            users=given.users,
            rate=given.rate,
        )
        return CreateManyBranches(client, measurements, parameters)

    parser.set_defaults(make=make)


def _add_key_list_spilling(kinds: Any) -> None:
    parser = _kind(kinds, "key-list-spilling", "commits of long new keys on top of many")
    _add_users(parser)
    parser.add_argument("--branch", help="the prefix of the branches [spilling-TIME]")
    _add_count(parser, "--base-commits", 98, "commits of the base branch")
    _add_count(parser, "--puts-per-base-commit", 10, "keys that each of them adds")
    _add_count(parser, "--test-commits", 40, "commits on each branch of a user")
    _add_count(parser, "--puts-per-test-commit", 1, "keys that each of them adds")
    _add_duration(parser, 60.0)

    def make(client: Client, measurements: Measurements, given: argparse.Namespace) -> Simulation:
        parameters = KeyListSpillingParameters(
            branch=given.branch or f"spilling-{_now_millis()}",
            base_commits=given.base_commits,
            puts_per_base_commit=given.puts_per_base_commit,
            test_commits=given.test_commits,
            puts_per_test_commit=given.puts_per_test_commit,
            users=given.users,
            rate=given.rate,
            duration_seconds=given.duration,
        )
        return KeyListSpilling(client, measurements, parameters)

    parser.set_defaults(make=make)


def _add_mixed_workloads(kinds: Any) -> None:
    parser = _kind(kinds, "mixed-workloads", "writers, readers and users of the web UI")
    for name in ("writers", "readers", "ui-users"):
        parser.add_argument(
            f"--{name}", type=count_or_zero, default=1, metavar="N", help="how many [%(default)s]"
        )
        parser.add_argument(
            f"--{name}-rate",
            type=rate,
            default=10.0,
            metavar="N",
            help="what each does per second; 0 as much as possible [%(default)g]",
        )
    parser.add_argument("--branch", help="the branch, and the prefix of others [mixed-TIME]")
    _add_count(parser, "--branches", 1, "how many branches there are")
    parser.add_argument("--namespace", default="", help="of the tables [none]")
    parser.add_argument("--table-prefix", metavar="NAME", default="table", help="[%(default)s]")
    _add_count(parser, "--tables", 10, "how many tables there are")
    _add_count(parser, "--active-tables", 1, "how many of them are read and updated")
    _add_count(parser, "--tables-per-commit", 20, "of the commits that create the tables")
    _add_count(parser, "--read-tables", 1, "how many a reader reads at once")
    parser.add_argument(
        "--no-conflicts", action="store_true", help="no two users update a table at a time"
    )
    _add_duration(parser, 20.0)
    _add_seed(parser)

    def make(client: Client, measurements: Measurements, given: argparse.Namespace) -> Simulation:
        parameters = MixedWorkloadsParameters(
            branch=given.branch or f"mixed-{_now_millis()}",
            branches=given.branches,
            namespace=given.namespace,
            table_prefix=given.table_prefix,
            total_tables=given.tables,
            active_tables=given.active_tables,
            tables_per_commit=given.tables_per_commit,
            read_tables=given.read_tables,
            allow_conflicts=not given.no_conflicts,
            writers=Population(given.writers, given.writers_rate),
            readers=Population(given.readers, given.readers_rate),
            ui_users=Population(given.ui_users, given.ui_users_rate),
            duration_seconds=given.duration,
            seed=given.seed,
        )
        return MixedWorkloads(client, measurements, parameters)

    parser.set_defaults(make=make)


def _simulate(arguments: argparse.Namespace) -> int:
    measurements = Measurements()
    make: Callable[[Client, Measurements, argparse.Namespace], Simulation] = arguments.make
    users = sum(getattr(arguments, name, 0) for name in ("users", "writers", "readers", "ui_users"))
    with client_of(arguments, connections=max(1, users)) as client:
        simulation = make(client, measurements, arguments)
        simulation.prepare()
        with progress_line(measurements, None, is_quiet=arguments.quiet) as look:
            return measured(
                measurements, lambda: simulation.run(Event(), look=look), as_json=arguments.json
            )


def _kind(kinds: Any, name: str, help: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = kinds.add_parser(
        name, help=help, description=f"Simulates {help}.", allow_abbrev=False
    )
    parser.set_defaults(tool=_simulate)
    add_server_flags(parser, is_tool=True)
    add_report_flags(parser)
    return parser


def _add_users(parser: argparse.ArgumentParser) -> None:
    _add_count(parser, "--users", 1, "how many users there are")
    parser.add_argument(
        "--rate",
        type=rate,
        default=0.0,
        metavar="N",
        help="what each does per second; 0 as much as possible [%(default)g]",
    )
    _add_seed(parser)


def _add_seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the random choices [%(default)s]"
    )


def _add_count(parser: argparse.ArgumentParser, flag: str, default: int, help: str) -> None:
    parser.add_argument(flag, type=count, default=default, metavar="N", help=f"{help} [{default}]")


def _add_duration(parser: argparse.ArgumentParser, seconds: float | None) -> None:
    shown = "no limit" if seconds is None else f"{seconds:g}s"
    parser.add_argument(
        "--duration", type=duration_seconds, default=seconds, metavar="TIME", help=f"[{shown}]"
    )


def _now_millis() -> int:
    return World().clock_nanos() // 1_000_000
