"""`morag generate` makes the history that its options describe, and measures the server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import pytest

from morag.cli.main import main
from morag.client import Client
from morag.generate.committing import Generator
from morag.generate.generate_options import GenerateOptions
from morag.generate.measuring import Measurements
from morag.model.content import DeltaLakeTable, IcebergTable, IcebergView, Namespace
from morag.model.operations import Put
from tests.server_process import PATIENCE_SECONDS, Served, run

if TYPE_CHECKING:
    from pathlib import Path

    from morag.model.keys import ContentKey

FIRST_COMMAND: Final = "generate -u {uri}/api/v1 -t 5000 -n 40"
LONG_KEYS: Final = "stuff-folders.stuff-${every,150,uuid}.foolish-key_${every,20,uuid}.${uuid}_0"


def figures_of(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def log_of(client: Client, branch: str) -> list[tuple[str, list[object]]]:
    """Messages and puts, oldest first, without what the server chose: content ids."""
    return [
        (
            entry.meta.message,
            [
                (put.key, type(put.content), getattr(put.content, "metadata_location", None))
                for put in entry.operations or ()
                if isinstance(put, Put)
            ],
        )
        for entry in reversed(list(client.history.log(branch, with_operations=True)))
    ]


def test_the_first_command_of_the_documentation_of_nessie_works(tmp_path: Path) -> None:
    with Served(tmp_path) as server:
        done = run(*FIRST_COMMAND.format(uri=server.url).split(), directory=tmp_path)
        assert done.returncode == 0, done.stderr
        assert re.match(r"40 commits in .* 0 failures\n", done.stdout)
        with Client(server.url) as client:
            assert client.history.extent("main").commits == 40
            keys = [entry for entry in client.contents.entries("main") if entry.type != "NAMESPACE"]
            assert 30 < len(keys) <= 40
            assert all(re.fullmatch(r"create-contents-[\d-]+", e.key.elements[0]) for e in keys)


def test_the_second_command_with_long_random_keys_works(tmp_path: Path) -> None:
    with Served(tmp_path) as server:
        arguments = ("-t", "3000", "-n", "20", "--puts-per-commit", "10")
        uri = f"{server.url}/api/v1"
        done = run(
            "generate", "-u", uri, *arguments, "--key-pattern", LONG_KEYS, directory=tmp_path
        )
        assert done.returncode == 0, done.stderr
        with Client(server.url) as client:
            log = list(client.history.log("main", with_operations=True))
            assert len(log) == 20
            for entry in log:
                tables = [
                    put
                    for put in entry.operations or ()
                    if isinstance(put, Put) and isinstance(put.content, IcebergTable)
                ]
                assert 7 <= len(tables) <= 10  # A key may be drawn twice.
                assert all(put.key.elements[0] == "stuff-folders" for put in tables)
                assert all(len(put.key.elements) == 4 for put in tables)


def test_commits_are_spread_over_branches_and_contents_keep_their_ids(
    server: Served, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("-u", server.url, "-n", "60", "-b", "3", "-t", "5", "-D", "spread", "--seed", "11")
    assert main(["generate", *flags, "--puts-per-commit", "2", "--json"]) == 0
    figures = figures_of(capsys)
    assert figures["commits"] == 60
    assert 60 < figures["puts"] <= 120
    assert [each["name"] for each in figures["requests"]] == ["read", "commit"]
    for each in figures["requests"]:
        assert each["succeeded"] == 60
        assert 0 < each["p50_millis"] <= each["p95_millis"] <= each["p99_millis"]
        assert each["p99_millis"] <= each["max_millis"]
    commits = 0
    for branch in ("spread", "branch-seed-11_0", "branch-seed-11_1"):
        ids: dict[ContentKey, str | None] = {}
        log = list(client.history.log(branch, with_operations=True))
        assert 8 < len(log) < 40
        commits += len(log)
        for entry in reversed(log):
            for put in entry.operations or ():
                assert isinstance(put, Put)
                assert ids.setdefault(put.key, put.content.id) == put.content.id
        assert len(ids) == 2 + 5
    assert commits == 60


def test_the_same_seed_gives_the_same_history_twice(tmp_path: Path) -> None:
    histories = []
    for seed in ("5", "5", "6"):
        with Served(tmp_path) as server, Client(server.url) as client:
            flags = ("-n", "30", "-b", "2", "-t", "9", "-T", "0.3", "--seed", seed, "--quiet")
            pattern = ("--key-pattern", "a.${uuid}", "--author", "Ada")
            assert main(["generate", "-u", server.url, *flags, *pattern]) == 0
            branches = [ref.name or "" for ref in client.references.list("BRANCH")]
            tags = [ref.name for ref in client.references.list("TAG")]
            histories.append(({name: log_of(client, name) for name in branches}, tags))
    assert histories[0] == histories[1] != histories[2]
    assert len(histories[0][1]) > 2


def test_several_workers_on_the_same_keys_make_all_commits(
    server: Served, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("-u", server.url, "-n", "80", "-t", "2", "-D", "workers", "--workers", "4")
    assert main(["generate", *flags, "--json"]) == 0
    figures = figures_of(capsys)
    assert (figures["commits"], figures["failures"]) == (80, 0)
    assert figures["retries"] > 0
    assert client.history.extent("workers").commits == 80


@pytest.mark.parametrize(
    ("type", "kind"),
    [("iceberg_view", IcebergView), ("DELTA_LAKE_TABLE", DeltaLakeTable)],
)
def test_other_types_are_generated(
    server: Served, client: Client, type: str, kind: type[object]
) -> None:
    flags = ("-u", server.url, "-n", "4", "-t", "2", "-D", f"type-{type}", "--type", type)
    assert main(["generate", *flags, "--quiet"]) == 0
    listed = client.contents.entries(f"type-{type}", with_content=True)
    kinds = {type_of(entry.content) for entry in listed}
    assert kinds == {Namespace, kind}


def type_of(content: object) -> type[object]:
    return type(content)


def test_every_commit_can_be_tagged(server: Served, client: Client) -> None:
    flags = ("-u", server.url, "-n", "5", "-T", "1", "-D", "tagged", "--quiet")
    before = {ref.name for ref in client.references.list("TAG")}
    assert main(["generate", *flags]) == 0
    tags = [ref for ref in client.references.list("TAG") if ref.name not in before]
    assert {tag.hash for tag in tags} == set(client.history.hashes("tagged"))
    assert all(re.fullmatch(r"new-tag-\d+", tag.name or "") for tag in tags)


def test_a_duration_spreads_the_commits(server: Served) -> None:
    began = monotonic()
    flags = ("-u", server.url, "-n", "4", "-d", "PT0.8S", "-D", "slow", "--quiet")
    assert main(["generate", *flags]) == 0
    assert monotonic() - began >= 0.6  # The last commit begins after three quarters.


def test_a_failed_commit_ends_the_run_unless_it_shall_go_on(
    server: Served, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """The key of the table is a namespace of an earlier run, so each commit fails."""
    first = ("-u", server.url, "-n", "1", "-D", "failing", "--key-pattern", "a.b.c", "--quiet")
    assert main(["generate", *first]) == 0
    capsys.readouterr()
    second = ("-u", server.url, "-n", "3", "-D", "failing", "--key-pattern", "a.b", "--json")
    assert main(["generate", *second]) == 1
    assert figures_of(capsys)["failures"] == 1
    assert main(["generate", *second, "--continue-on-error"]) == 1
    figures = figures_of(capsys)
    assert (figures["failures"], figures["commits"]) == (3, 0)
    assert figures["shown_failures"][0].startswith("commit: ")


def test_an_interrupt_prints_the_figures_so_far(server: Served, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "morag", "generate", "-u", server.url, "-v"]
    flags = ["-n", "1000000", "-D", "interrupted"]
    with subprocess.Popen(
        [*command, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, text=True
    ) as process:
        assert process.stderr is not None and process.stdout is not None
        for _ in range(3):
            assert process.stderr.readline().startswith("committed ")
        os.kill(process.pid, signal.SIGINT)
        errors, output = process.stderr.read(), process.stdout.read()
        assert process.wait(PATIENCE_SECONDS) == 1
    assert "stopped; these are the figures so far" in errors
    assert "Traceback" not in errors
    assert re.match(r"[\d,]+ commits in .* 0 failures\nrequest ", output)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("-n", "0"), "'0' is not a number from 1"),
        (("-T", "1.5"), "'1.5' is not a number from 0 to 1"),
        (("-d", "soon"), "'soon' is not a duration"),
        (("--type", "UDF"), "invalid choice: 'UDF'"),
        (("-o", "secret"), "--nessie-option must be NAME=VALUE"),
        (("-o", "nessie.authentication.type=AWS"), "NONE or BEARER"),
        (("--key-pattern", "${guid}"), "no function 'guid'"),
    ],
)
def test_wrong_options_are_refused_without_a_server(
    flags: tuple[str, str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["generate", "-u", "http://127.0.0.1:1", *flags])
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code in (1, 2)
    assert problem in capsys.readouterr().err


def test_an_option_of_nessies_client_without_a_meaning_is_named(
    server: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("-o", "nessie.transport.read-timeout=5000", "-o", "nessie.ref=x")
    flags = ("--nessie-client", "HTTP", "-n", "1", "-D", "options", "--quiet")
    assert main(["generate", "-u", f"{server.url}/api/v2", *options, *flags]) == 0
    assert "nessie.ref of Nessie's client is ignored" in capsys.readouterr().err


def test_a_branch_of_the_same_seed_is_explained(
    server: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("-u", server.url, "-n", "1", "-b", "2", "--seed", "99", "-D", "twice", "--quiet")
    assert main(["generate", *flags]) == 0
    assert main(["generate", *flags]) == 1
    assert "choose another seed, or delete the branch" in capsys.readouterr().err


def test_generator_without_the_command(client: Client) -> None:
    measurements = Measurements()
    options = GenerateOptions(seed=1, run="api", commits=3, default_branch="api")
    generator = Generator(client, options, measurements)
    generator.prepare()
    generator.run(Event())
    assert measurements.figures().commits == client.history.extent("api").commits == 3
