"""The content generator through a server: each commit reads its keys and puts random contents."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from msgspec.structs import replace

from morag.errors import (
    MoragError,
    ReferenceAlreadyExists,
    ReferenceNotFound,
)
from morag.generate.branch_tips import BranchTip, with_retries
from morag.generate.generated_keys import keys_of, namespaces_of
from morag.generate.random_contents import random_content
from morag.generate.workers import Worker, shared_numbers, work
from morag.model.content import Namespace
from morag.model.operations import Put
from morag.model.refspecs import RefSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from threading import Event

    from morag.client import Client
    from morag.generate.generate_options import GenerateOptions
    from morag.generate.measuring import Measurements
    from morag.model.content import Content
    from morag.model.keys import ContentKey


class Generator:
    """Generates a history on a server.

    With one worker, the same seed on an empty catalog gives the same branches, keys, contents and
    messages in the same order; content ids and times, and with them hashes, are the server's.
    Several workers make the same commits in another order.
    """

    def __init__(
        self,
        client: Client,
        options: GenerateOptions,
        measurements: Measurements,
        *,
        continue_on_error: bool = False,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`note` gets a line about each branch, commit and tag."""
        self._client = client
        self._options = options
        self._measured = measurements
        self._continue_on_error = continue_on_error
        self._note = note
        self._keys = keys_of(options)
        self._branches: list[BranchTip] = []

    def prepare(self) -> None:
        """Create the branches."""
        client, name = self._client, self._options.default_branch
        default = client.references.get(client.default_branch)
        if name is not None and name != default.name:
            try:
                default = client.references.get(name)
            except ReferenceNotFound:
                default = client.references.create_branch(name, RefSpec(default.name, default.hash))
        self._branches = [BranchTip.of(default)]
        at = RefSpec(default.name, default.hash)
        for name in self._options.new_branches():
            try:
                created = client.references.create_branch(name, at)
            except ReferenceAlreadyExists as error:
                raise ReferenceAlreadyExists(
                    f"{error} An earlier run created it: choose another seed, or delete the branch"
                ) from None
            self._note(f"created branch {name} at {at}")
            self._branches.append(BranchTip.of(created))

    def run(
        self,
        stop: Event,
        *,
        workers: int = 1,
        seconds: float = 0.0,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """Make all commits, spread evenly over `seconds`; see `work` for the rest."""
        numbers = shared_numbers(self._options.commits)
        pause = seconds / self._options.commits
        each = Worker(self._commit, numbers, lambda number: number * pause)
        work([each] * workers, stop, look=look)

    def _commit(self, number: int) -> None:
        random = Random(f"{self._options.seed} {number}")  # Not shared, so workers do not matter.
        branch = random.choice(self._branches)
        keys = dict.fromkeys(random.choices(self._keys, k=self._options.puts_per_commit))
        contents = {key: random_content(self._options.type, random, None) for key in keys}
        step = "commit"
        try:
            hash = with_retries(
                self._client,
                self._measured,
                branch,
                lambda: self._attempt(number, branch, contents),
            )
            tag = self._options.tag_of(random)
            if tag is not None:
                step = "tag"
                with self._measured.request(step):
                    self._client.references.create_tag(tag, RefSpec(branch.name, hash))
                self._note(f"created tag {tag} at {branch.name} {hash}")
        except MoragError as error:
            self._measured.failed(step, error)
            if not self._continue_on_error:
                raise

    def _attempt(
        self, number: int, branch: BranchTip, contents: Mapping[ContentKey, Content]
    ) -> str:
        head = branch.spec
        spaces = [key for key in namespaces_of(contents) if key not in branch.namespaces]
        with self._measured.request("read"):
            found = self._client.contents.get_all(head, [*spaces, *contents])
        puts = [Put(key, Namespace(elements=key.elements)) for key in spaces if key not in found]
        for key, content in contents.items():
            existing = found.get(key)
            puts.append(Put(key, content if existing is None else replace(content, id=existing.id)))
        meta = self._options.meta_of(number, branch.name)
        with self._measured.request("commit"):
            hash = self._client.commit(branch.name, puts, meta, expected=head.hash).hash
        self._measured.committed(len(contents))
        branch.head = hash
        branch.namespaces.update(spaces)
        self._note(f"committed {', '.join(map(str, contents))} to {branch.name} {hash}")
        return hash
