"""The simulations make the load that Nessie's simulations of the same names make."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from morag.cli.main import main
from morag.errors import BadRequest
from morag.generate.simulations.commit_to_branch import BranchMode
from morag.generate.simulations.mixed_workloads import MixedWorkloadsParameters, Population
from morag.model.keys import ContentKey

if TYPE_CHECKING:
    from morag.client import Client
    from tests.server_process import Served


def simulate(
    server: Served, capsys: pytest.CaptureFixture[str], name: str, *flags: str, code: int = 0
) -> Any:
    arguments = ["generate", "simulate", name, "-u", server.url, "--json", *flags]
    assert main(arguments) == code
    return json.loads(capsys.readouterr().out)


def requests(figures: Any) -> dict[str, int]:
    return {each["name"]: each["succeeded"] for each in figures["requests"]}


@pytest.mark.parametrize("mode", BranchMode)
def test_users_commit_to_branches_in_every_mode(
    server: Served, client: Client, capsys: pytest.CaptureFixture[str], mode: BranchMode
) -> None:
    branch = f"mode-{mode.name}"
    flags = ("--branch", branch, "--mode", mode.name, "--table-prefix", "t", "--tables", "5")
    figures = simulate(
        server, capsys, "commit-to-branch", *flags, "--users", "3", "--commits", "10"
    )
    assert (figures["commits"], figures["failures"]) == (30, 0)
    if mode.has_branch_per_user:
        branches = [f"{branch}-{user}" for user in range(3)]
        assert figures["retries"] == 0
    else:
        branches = [branch]
    keys = {key for name in branches for key in client.contents.keys(name)}
    commits = [client.history.extent(name).commits for name in branches]
    assert commits == [30 // len(branches)] * len(branches)
    if mode.name.endswith("SINGLE_TABLE"):
        assert keys == {ContentKey.of("table-t")}
    elif mode is BranchMode.SINGLE_BRANCH_TABLE_PER_USER:
        assert keys == {ContentKey.of(f"table-t_{user}") for user in range(3)}
    else:
        assert keys == {ContentKey.of(f"table-t_{number}") for number in range(5)}


def test_unique_tables_are_never_updated(
    server: Served, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--branch", "unique", "--unique-tables", "--commits", "12")
    simulate(server, capsys, "commit-to-branch", *flags)
    assert len(list(client.contents.keys("unique-0"))) == 12


def test_a_duration_ends_users_without_a_number_of_commits(
    server: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = simulate(server, capsys, "commit-to-branch", "--duration", "0.3", "--rate", "50")
    assert 0 < figures["commits"] <= 50


def test_users_create_branches(
    server: Served, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--branch", "many", "--users", "2", "--branches", "7")
    figures = simulate(server, capsys, "create-many-branches", *flags)
    assert requests(figures) == {"create branch": 14}
    assert len(list(client.references.list(prefix="many-"))) == 14
    again = simulate(server, capsys, "create-many-branches", *flags, code=1)
    assert again["failures"] == 14
    assert "already exists" in again["shown_failures"][0]


def test_long_keys_are_added_on_top_of_a_base_branch(
    server: Served, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ("--branch", "spill", "--base-commits", "3", "--puts-per-base-commit", "4")
    test = ("--test-commits", "5", "--puts-per-test-commit", "2", "--duration", "0.3")
    figures = simulate(server, capsys, "key-list-spilling", *base, *test)
    assert figures["commits"] > 5
    assert figures["puts"] == 2 * figures["commits"]
    assert client.history.extent("spill-base").commits == 3
    assert client.history.extent("spill-test-0").commits == 3 + 5
    keys = list(client.contents.keys("spill-test-0"))
    assert len(keys) == 3 * 4 + 5 * 2
    assert all(len(key.name) > 256 for key in keys)


@pytest.mark.parametrize("conflicts", [(), ("--no-conflicts",)])
def test_writers_readers_and_ui_users_work_at_the_same_time(
    server: Served,
    client: Client,
    capsys: pytest.CaptureFixture[str],
    conflicts: tuple[str, ...],
) -> None:
    branch = f"mixed{len(conflicts)}"
    flags = ("--branch", branch, "--branches", "2", "--namespace", "a.b", "--tables", "25")
    users = ("--writers", "3", "--writers-rate", "0", "--active-tables", "4", "--read-tables", "2")
    figures = simulate(
        server, capsys, "mixed-workloads", *flags, *users, *conflicts, "--duration", "0.5"
    )
    assert figures["failures"] == 0
    assert not conflicts or figures["retries"] == 0
    done = requests(figures)
    assert done["readers: read"] >= 3
    assert done["ui: list entries"] >= 3
    assert done["writers: commit"] + done["ui: commit"] == figures["commits"]
    heads = [client.history.extent(name).commits or 0 for name in (branch, f"{branch}-1")]
    assert sum(heads) == figures["commits"] + 2 * 2  # 25 tables are created in two commits.
    assert len(list(client.contents.keys(branch))) == 25 + 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"active_tables": 11},
        {"read_tables": 2},
        {"allow_conflicts": False, "writers": Population(users=3)},
    ],
)
def test_parameters_that_cannot_be_met_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        MixedWorkloadsParameters(branch="x", **wrong)
