"""pynessie's command line: every command, sub-command and option."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.interop.pynessie_command import API, NessieCommand
from tests.interop.rest import NOTHING, delta, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.interop.rest import Rest

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

ANN: Final = "Ann <ann@x.org>"


@pytest.fixture
def nessie(rest: Rest, tmp_path: Path) -> NessieCommand:
    """The command of a user who has set the remote."""
    nessie = NessieCommand(tmp_path)
    nessie("remote", "add", rest.address + API)
    return nessie


@pytest.fixture
def branch(sample_branch: str, nessie: NessieCommand) -> str:
    """The default branch of commands. It has two commits."""
    nessie("remote", "set-head", sample_branch)
    return sample_branch


# The command itself


def test_the_installed_command_runs(rest: Rest, tmp_path: Path) -> None:
    nessie = Path(sys.executable).with_name("nessie")
    shown = subprocess.run(
        [nessie, "--endpoint", rest.address + API, "remote", "show"],
        env={"NESSIEDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Default branch: main" in shown.stdout


def test_the_version_is_printed(nessie: NessieCommand) -> None:
    assert nessie("--version").startswith("nessie version 0.67")


def test_a_server_that_needs_no_token_accepts_one(nessie: NessieCommand, branch: str) -> None:
    assert "second" in nessie("--auth-token", "secret", "log", branch)


def test_an_error_is_shown_with_the_whole_response_of_the_server(
    nessie: NessieCommand, rest: Rest
) -> None:
    url = f"{rest.address}{API}/trees/tree/absent"
    assert nessie.refuses("branch", "-d", "absent") == {
        "server_message": "Named reference 'absent' not found",
        "error_code": "REFERENCE_NOT_FOUND",
        "server_status": 404,
        "server_stack_trace": None,
        "status_code": 404,
        "url": url,
        "msg": "Client Error Not Found: Named reference 'absent' not found",
    }


# remote, config


def test_the_remote_and_its_head_are_shown(nessie: NessieCommand, rest: Rest, branch: str) -> None:
    shown = nessie("remote", "show")
    assert f"Remote URL: {rest.address}{API}\n" in shown
    assert "Default branch: main\n" in shown
    assert {"\tmain", f"\t{branch}"} <= {*shown.splitlines()}


def test_the_head_of_the_remote_can_be_set_and_unset(nessie: NessieCommand, branch: str) -> None:
    assert marked(nessie) == branch
    nessie("remote", "set-head", "-d", branch)
    assert marked(nessie) == "main"


def test_settings_can_be_added_read_listed_and_unset(nessie: NessieCommand) -> None:
    nessie("config", "--add", "auth.timeout", "--type", "int", "17")
    assert nessie("config", "--get", "auth.timeout", "--type", "int") == "17\n"
    assert "timeout: 17" in nessie("config", "--list")
    nessie("config", "--add", "colour", "red")
    assert nessie("config", "colour") == "red\n"
    nessie("config", "--unset", "colour")
    assert "colour: red" not in nessie("config", "-l")
    assert "Usage:" in nessie("config")


# branch, tag


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_a_reference_is_created_assigned_and_deleted(
    kind: str, nessie: NessieCommand, rest: Rest, branch: str
) -> None:
    name, head = f"{branch}/{kind}", rest.head(branch)
    first = rest.history(branch)[1]["commitMeta"]["hash"]
    nessie(kind, name)
    assert hash_of(nessie, kind, name) == head
    assert nessie.refuses(kind, name)["error_code"] == "REFERENCE_ALREADY_EXISTS"
    nessie(kind, "-f", name, f"{branch}@{first}")
    assert hash_of(nessie, kind, name) == first
    refused = nessie.refuses(kind, "-f", "-c", NOTHING, name, branch)
    assert refused["error_code"] == "REFERENCE_CONFLICT"
    nessie(kind, "-f", "-c", first, name, branch)
    assert hash_of(nessie, kind, name) == head
    nessie(kind, "-f", "-o", first, name, branch)
    assert hash_of(nessie, kind, name) == first
    assert nessie.refuses(kind, "-d", "-o", head, name)["error_code"] == "REFERENCE_CONFLICT"
    nessie(kind, "-d", name)
    assert nessie.json(kind, "-l", name) == {}


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_a_reference_can_start_at_any_commit(
    kind: str, nessie: NessieCommand, rest: Rest, branch: str
) -> None:
    first = rest.history(branch)[1]["commitMeta"]["hash"]
    for name, args in {
        "head": [branch],
        "at": [f"{branch}@{first}"],
        "option": [branch, "-o", first],
    }.items():
        nessie(kind, f"{branch}/{name}", *args)
        expected = rest.head(branch) if name == "head" else first
        assert hash_of(nessie, kind, f"{branch}/{name}") == expected


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_references_are_listed(kind: str, nessie: NessieCommand, rest: Rest, branch: str) -> None:
    head, name = rest.head(branch), f"{branch}/{kind}"
    nessie(kind, name)
    listed = [it for it in nessie.json(kind) if it["name"] == name]
    assert listed == [{"name": name, "hash": head, "type": kind.upper(), "metadata": None}]
    assert any(line.split() == [name, head] for line in nessie("-v", kind, "-l").splitlines())
    about = nessie.json(kind, "-l", "-x", name)["metadata"]
    assert about["numTotalCommits"] == 2
    assert about["commitMetaOfHEAD"]["message"] == "second"
    assert about["numCommitsAhead"] == (2 if kind == "branch" else None)
    shown = next(line for line in nessie(kind, "-x").splitlines() if name in line)
    assert "total commits: 2" in shown
    assert "msg: second" in shown


# content


def test_content_is_listed(nessie: NessieCommand, branch: str) -> None:
    assert nessie("content", "list").split() == [
        *["NAMESPACE:", "db"],
        *["DELTA_LAKE_TABLE:", "db.delta"],
        *["ICEBERG_TABLE:", "db.one", 'db."with.dots"'],
        *["ICEBERG_VIEW:", "db.view"],
    ]
    for args in (
        ["-t", "ICEBERG_VIEW", "-t", "DELTA_LAKE_TABLE"],
        ["--filter", "entry.namespace == 'db' && !(entry.contentType in ['ICEBERG_TABLE'])"],
    ):
        listed = nessie.json("content", "list", "-r", branch, *args)
        assert [it["name"]["elements"] for it in listed] == [["db", "delta"], ["db", "view"]]
        assert [it["type"] for it in listed] == ["DELTA_LAKE_TABLE", "ICEBERG_VIEW"]


def test_content_is_shown(nessie: NessieCommand, branch: str) -> None:
    shown = nessie("content", "view", "-r", branch, "db.one", 'db."with.dots"', "db.view", "db")
    for part in ("snapshot-id: 1", "snapshot-id: 2", "Sql: select 1", "elements: db"):
        assert part in shown
    found = nessie.json("content", "view", "db.one", "db.delta")
    assert [{**it, "id": None} for it in found] == [
        {**table(1), "id": None},
        {**delta(1), "id": None},
    ]
    assert nessie.refuses("content", "view", "db.none")["error_code"] == "CONTENT_NOT_FOUND"


def test_content_is_committed_from_standard_input(
    nessie: NessieCommand, rest: Rest, branch: str
) -> None:
    made = json.dumps({**table(8), "id": None})
    args = ["-c", rest.head(branch), "-m", "make it", "--author", ANN]
    assert "committed" in nessie("content", "commit", "-i", *args, "db.new", input=made)
    found = nessie.json("content", "view", "db.new")[0]
    assert found["id"]
    assert found["snapshotId"] == 8
    about = nessie.json("log", "-n", "1")[0]
    assert (about["message"], about["author"]) == ("make it", ANN)


def test_new_content_must_not_have_an_id(nessie: NessieCommand, rest: Rest, branch: str) -> None:
    head, made = rest.head(branch), json.dumps({**table(8), "id": str(uuid.uuid4())})
    refused = nessie.refuses("content", "commit", "-i", "-c", head, "-m", "m", "new", input=made)
    assert (refused["status_code"], refused["error_code"]) == (400, "BAD_REQUEST")
    assert rest.head(branch) == head


def test_content_is_edited_in_an_editor(nessie: NessieCommand, rest: Rest, branch: str) -> None:
    editor = "sed -i -e 's/.snapshotId.: 1,/\"snapshotId\": 9,/' -e '1s/^$/by hand/'"
    output = nessie("content", "commit", "-r", branch, "-c", rest.head(branch), "-s", "db.one",
                  editor=editor)  # fmt: skip
    assert "Setting content for key db.one" in output
    assert nessie.json("content", "view", "db.one")[0]["snapshotId"] == 9
    assert nessie.json("log", "-n", "1")[0]["message"] == "by hand"


def test_content_is_removed(nessie: NessieCommand, rest: Rest, branch: str) -> None:
    before = rest.head(branch)
    keys = ["db.view", 'db."with.dots"']
    nessie("content", "commit", "-R", "-r", branch, "-c", before, "-m", "away", *keys)
    assert "ICEBERG_VIEW" not in nessie("content", "list")
    assert "dots" not in nessie("content", "list")
    refused = nessie.refuses("content", "commit", "-R", "-c", before, "-m", "again", "db.view")
    assert refused["error_code"] == "REFERENCE_CONFLICT"


# log


def test_the_log_is_shown(nessie: NessieCommand, rest: Rest, branch: str) -> None:
    second, first = [it["commitMeta"]["hash"] for it in rest.history(branch)]
    shown = nessie("log")
    assert shown.index(f"commit {second} ({branch})") < shown.index(f"commit {first}\n")
    assert "\tsecond\n" in shown
    assert "snapshot-id: 1" in nessie("log", "-x", branch)
    assert [it["commitMeta"]["hash"] for it in nessie.json("log", "-x")] == [second, first]
    assert [it["hash"] for it in nessie.json("log", "-n", "1")] == [second]
    for it in (first, f"{branch}@{first}"):
        assert [found["hash"] for found in nessie.json("log", it)] == [first]


def test_the_log_can_be_filtered(nessie: NessieCommand, rest: Rest, branch: str) -> None:
    args = ["content", "commit", "-R", "-m", "away"]
    nessie(*args, "-c", rest.head(branch), "--author", ANN, "db.view")
    nessie(*args, "-c", rest.head(branch), "--author", "Bob", "db.delta")
    bob, ann, second, first = [it["commitMeta"] for it in rest.history(branch)]

    def found(*args: str) -> list[str]:
        return [it["hash"] for it in nessie.json("log", branch, *args)]

    every = [it["hash"] for it in (bob, ann, second, first)]
    assert found() == every
    assert found("--author", ANN) == every[1:2]
    assert found("--author", ANN, "--author", "Bob") == every[:2]
    assert found("--committer", "nobody") == []
    early, late = between(first, second), between(ann, bob)
    assert found("--after", late) == found("--since", late) == every[:1]
    assert found("--before", early) == found("--until", early) == every[3:]
    assert found("--after", early, "--before", late) == every[1:3]
    assert found("--filter", "commit.author == 'Bob' || commit.message == 'first'") == [
        every[0],
        every[3],
    ]
    assert found("-r", every[1]) == every[1:]
    assert found("-r", f"{every[2]}..{every[1]}") == every[1:3]
    assert found("-r", f"{every[2]}..") == every[:3]


# merge, cherry-pick, diff


def test_a_branch_is_merged(nessie: NessieCommand, rest: Rest, branch: str) -> None:
    base, dev = rest.head(branch), forked(nessie, rest, branch, "db.view", "db.delta")
    halfway = rest.history(dev)[1]["commitMeta"]["hash"]
    output = nessie("merge", "-c", base, "-o", halfway, dev)
    assert f"Merged {dev} onto {branch} (was on {base} before merge)" in output
    assert f"Identified merge base commit {base}" in output
    assert f"after merge: {rest.head(branch)}" in output
    assert "db.view" not in nessie("content", "list")
    done = nessie.json("merge", "-f", "-b", branch, dev)
    assert (done["wasApplied"], done["resultantTargetHash"]) == (True, rest.head(branch))
    assert [it["key"]["elements"] for it in done["details"]] == [["db", "delta"]]
    assert "Nothing merged" in nessie("merge", "-f", dev)


def test_a_merge_can_be_refused(nessie: NessieCommand, rest: Rest, branch: str) -> None:
    dev = forked(nessie, rest, branch, "db.view")
    rest.create(f"{branch}/none")
    refused = nessie.refuses("merge", "-f", "-b", f"{branch}/none", dev)
    assert refused["error_code"] == "REFERENCE_NOT_FOUND"
    assert "No common ancestor" in refused["server_message"]
    edit(nessie, rest, branch)
    edit(nessie, rest, dev)
    assert nessie.refuses("merge", "-f", dev)["error_code"] == "REFERENCE_CONFLICT"


def test_commits_are_picked(nessie: NessieCommand, rest: Rest, branch: str) -> None:
    base, dev = rest.head(branch), forked(nessie, rest, branch, "db.view", "db.delta")
    older, newer = [it["commitMeta"]["hash"] for it in rest.history(dev)[1::-1]]
    output = nessie("cherry-pick", "-c", base, "-s", dev, older)
    assert f"Cherry-picked onto {branch} (was on {base} before)" in output
    assert rest.head(branch) in output
    done = nessie.json("cherry-pick", "-f", "-b", branch, "-s", dev, newer)
    assert done["wasApplied"]
    assert [it["message"] for it in nessie.json("log")][:2] == ["drop db.delta", "drop db.view"]
    assert nessie.refuses("cherry-pick", "-f", "-s", dev, newer, older)["status_code"] == 400


def test_two_references_are_compared(nessie: NessieCommand, rest: Rest, branch: str) -> None:
    before, dev = rest.head(branch), forked(nessie, rest, branch, "db.view")
    edit(nessie, rest, dev)
    shown = nessie("diff", branch, dev)
    assert "ContentKey: db.one" in shown
    assert "Sql: select 1" in shown
    for one, other in ((branch, dev), (before, dev), (f"{branch}@{before}", dev)):
        changed, dropped = nessie.json("diff", one, other)["diffs"]
        assert (changed["from"]["snapshotId"], changed["to"]["snapshotId"]) == (1, 77)
        assert (dropped["from"]["type"], dropped["to"]) == ("ICEBERG_VIEW", None)
    assert nessie.json("diff", dev, f"{dev}@{rest.head(dev)}")["diffs"] == []
    refused = nessie.refuses("diff", branch, "absent")
    assert refused["error_code"] == "REFERENCE_NOT_FOUND"


# Helpers


def forked(nessie: NessieCommand, rest: Rest, branch: str, *drops: str) -> str:
    """A new branch from `branch`, with a commit for every key that it drops."""
    dev = f"{branch}/dev"
    nessie("branch", dev, branch)
    for key in drops:
        args = ["-r", dev, "-c", rest.head(dev), "-m", f"drop {key}"]
        nessie("content", "commit", "-R", *args, key)
    return dev


def edit(nessie: NessieCommand, rest: Rest, branch: str) -> None:
    """Commit a change of `db.one` to each branch."""
    edited = json.dumps({**table(77), "id": None, "metadataLocation": branch})
    args = ["-r", branch, "-c", rest.head(branch), "-m", "edit"]
    nessie("content", "commit", "-i", *args, "db.one", input=edited)


def between(older: Mapping[str, str], newer: Mapping[str, str]) -> str:
    """A time between two commits."""
    then, later = (datetime.fromisoformat(it["commitTime"]) for it in (older, newer))
    return (then + (later - then) / 2).isoformat()


def hash_of(nessie: NessieCommand, kind: str, name: str) -> str:
    return str(nessie.json(kind, "-l", name)["hash"])


def marked(nessie: NessieCommand) -> str:
    """The branch that is marked by an asterisk in the list."""
    return next(line.split()[1] for line in nessie("branch").splitlines() if line[0] == "*")
