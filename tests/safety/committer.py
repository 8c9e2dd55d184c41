"""A process that commits as fast as it can and prints what was acknowledged.

    python -m tests.safety.committer URL NAME [--threads N] [--commits N] [--bytes N] [--references]
                                     [--each] [--loop]

It prints `ready`, then `try WHAT` before each operation and `done WHAT HASH` after it. A
line is one write to the pipe, so a killed process leaves no half line that looks like a whole one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Barrier
from typing import TYPE_CHECKING

from msgspec.structs import replace

import morag
from morag.config import Settings
from morag.model.meta import CommitMeta
from morag.model.operations import Put
from tests import spawners
from tests.safety.history_checks import ROOT, child_environment, key, put, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.versions.repository import Repository
    from morag.versions.tickets import Spawn

KEYS = 5
WAYS: Sequence[tuple[str, tuple[str, ...]]] = (
    ("rocksdb", ()),
    ("rocksdb", ("--loop",)),
    ("sqlite", ()),
)
"""The embedded engines, and the options that make a difference to how they are written."""
PATIENT = Settings(commit_timeout_ms=60_000)


def report(*words: str) -> None:
    os.write(1, (" ".join(words) + "\n").encode())


def command(url: str, name: str, *options: str) -> list[str]:
    """The command line that starts this module in a child process."""
    return [sys.executable, "-m", "tests.safety.committer", url, name, *options]


def start(url: str, name: str, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(url, name, *options), stdout=subprocess.PIPE, cwd=ROOT, env=child_environment()
    )


def commit_message(name: str) -> str:
    """The name three times, so that one stays in one piece when a log splits its records."""
    return f"<{name}> <{name}> <{name}>"


def commit(
    repo: Repository,
    branch: str,
    me: str,
    commits: int | None,
    extra_bytes: int,
    spawn: Spawn | None,
) -> None:
    """Create a few keys, then update them, over and over."""
    ids: dict[int, str] = {}
    for n in count() if commits is None else range(commits):
        name, slot = f"{me}-{n}", n % KEYS
        report("try", name)
        content = table(n, ids.get(slot))
        content = replace(content, metadata_location=content.metadata_location + extra_bytes * "x")
        operation = Put(key(f"{me}-{slot}"), content)
        if spawn is None:
            result = repo.commit(branch, [operation], commit_message(name))
        else:
            request = repo.commit_request(branch, [operation], commit_message(name))
            result = spawners.result(repo, request, spawn)
        report("done", name, result.hash)
        if slot not in ids:
            ids[slot] = result.added[key(f"{me}-{slot}")]


def change_references(repo: Repository, me: str) -> None:
    """Create, commit to, merge and delete branches. Every third one stays."""
    for n in count():
        branch = f"{me}-{n}"
        report("try", f"create:{branch}")
        repo.references.create_branch(branch, "main")
        report("done", f"create:{branch}", "-")
        repo.commit(branch, [put(f"on-{branch}")], "on a branch")
        report("try", f"merge-{branch}")
        meta = CommitMeta(message=commit_message(f"merge-{branch}"))
        merged = repo.merge(branch, "main", meta=meta)
        report("done", f"merge-{branch}", merged.resultant_target_hash or "")
        if n % 3:
            report("try", f"delete:{branch}")
            repo.references.delete(branch)
            report("done", f"delete:{branch}", "-")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--commits", type=int)
    parser.add_argument("--bytes", type=int, default=0, help="add this many bytes to each commit")
    parser.add_argument("--references", action="store_true")
    parser.add_argument("--each", action="store_true", help="give each thread its own branch")
    parser.add_argument("--loop", action="store_true", help="commit as a server does")
    args = parser.parse_args()
    with morag.open(args.url, PATIENT) as repo, ThreadPoolExecutor(args.threads + 1) as pool:
        names = [f"{args.name}.t{n}" for n in range(args.threads)]
        branches = dict.fromkeys(names, "main")
        if args.each:
            branches = {name: name for name in names}
            for name in names:
                repo.references.create_branch(name, None)
        all_started = Barrier(args.threads)
        spawn = spawners.LoopSpawner().spawn if args.loop else None

        def work(name: str) -> None:
            all_started.wait()
            commit(repo, branches[name], name, args.commits, args.bytes, spawn)

        report("ready")
        running = [pool.submit(work, name) for name in names]
        if args.references:
            running.append(pool.submit(change_references, repo, args.name))
        for future in running:
            future.result()


if __name__ == "__main__":
    main()
