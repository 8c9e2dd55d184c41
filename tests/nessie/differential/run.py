"""One random history, from an empty repository to a final comparison of everything."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, closing
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tests.nessie.differential.generator import Generator
from tests.nessie.differential.pair import Difference, Diverged, Pair
from tests.nessie.differential.requests import Request, path
from tests.nessie.differential.world import World
from tests.nessie.server import Server
from tests.server_process import Served

if TYPE_CHECKING:
    from pathlib import Path


class Outcome(Struct, frozen=True):
    seed: int
    steps: int
    requests: int
    known: Counter[str]
    differences: list[tuple[int, Difference]]

    def __str__(self) -> str:
        head = f"seed {self.seed}: {self.steps} steps, {self.requests} requests, known: "
        lines = [head + ", ".join(f"{count} of {what}" for what, count in self.known.items())]
        for step, difference in self.differences:
            lines += ["", f"seed {self.seed}, step {step}", str(difference)]
        if self.differences:
            lines += ["", "before the first one:", *self.differences[0][1].before]
        return "\n".join(lines)


def run(seed: int, steps: int, directory: Path, *, twins: bool = False) -> Outcome:
    """Compare Nessie with Morag, or with `twins` two Nessies. All stores are in memory."""
    with ExitStack() as stack:
        nessie = stack.enter_context(Server({}, directory / "nessie.log", {})).address
        if twins:
            other = stack.enter_context(Server({}, directory / "twin.log", {})).address
        else:
            other = stack.enter_context(Served(directory)).url
        pair = stack.enter_context(closing(Pair(nessie, other, twins=twins)))
        return _run(pair, seed, steps)


def _run(pair: Pair, seed: int, steps: int) -> Outcome:
    world = World(pair)
    generator = Generator(pair, world, Random(seed))
    differences: list[tuple[int, Difference]] = []
    for step in range(1, steps + 1):
        try:
            generator.step()
        except Diverged:
            assert pair.differences, "the servers diverged without a difference"
            world.heal()
        differences += [(step, difference) for difference in pair.differences]
        pair.differences.clear()
    compare_all(pair, world)
    differences += [(steps, difference) for difference in pair.differences]
    return Outcome(seed, steps, pair.requests, pair.known.counts, differences)


def compare_all(pair: Pair, world: World) -> None:
    """All references, all logs with their operations, all content of every head."""
    everything = (("fetch", "ALL"),)
    pair.ask(Request("GET", path("trees", api="v1"), everything))
    listed = pair.ask(Request("GET", path("trees"), everything))
    for reference in listed.json["references"]:
        name = reference["name"]
        head = f"@{reference['hash']}"
        _all_pages(pair, Request("GET", path("trees", head, "history"), everything))
        _all_pages(pair, Request("GET", path("trees", name, "entries"), (("content", "true"),)))
        if not world.healed:
            changes = path("trees", name, "recent-changes")
            pair.ask(Request("GET", changes, (("scan-commits", "50"),)))
        pair.ask(Request("GET", path("trees", "tree", name, "log", api="v1"), everything))
        pair.ask(Request("GET", path("namespaces", name, api="v1")))


def _all_pages(pair: Pair, request: Request) -> None:
    reply = pair.ask(request)
    while reply.ok and reply.json["hasMore"]:
        token = ("page-token", reply.json["token"])
        reply = pair.ask(replace(request, query=(*request.query, token)))
