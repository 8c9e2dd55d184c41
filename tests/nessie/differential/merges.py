"""Random merges and transplants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec.structs import replace

from tests.nessie.differential.known_differences import (
    EMPTY_MERGE,
    EQUAL_BASES,
    LOST_KEY,
    MERGED_RENAME,
    TRANSPLANTED,
    WRONG_BASE,
)
from tests.nessie.differential.random_requests import RandomRequests, key_json
from tests.nessie.differential.requests import Request
from tests.nessie.differential.symbols import NESSIE
from tests.nessie.differential.vocabulary import BEHAVIORS, MESSAGES, content, meta, some_key

if TYPE_CHECKING:
    from tests.nessie.differential.symbols import Json
    from tests.nessie.differential.vocabulary import Key

# Expected content ids by key after a rename is merged: None for a key without content.
Moved: TypeAlias = "dict[Key, str | None]"

_DRY: Final = {"isDryRun": True, "isReturnConflictAsResult": True}
_SCRATCH: Final = "scratch"
_RENAMED: Final = "renamed"


class Merges(RandomRequests):
    def merge(self) -> None:
        source, target = self.name(), self.branch()
        hash = self.hash_on(source)
        body: Json = {"fromRefName": source, "fromHash": hash}
        if self.chance(0.05):
            body["fromRefName"] = "DETACHED"
        if self.chance(0.05):
            body["fromHash"] += self.relative()
        elif self.chance(0.02):
            del body["fromHash"]
        self.add_modes(body, hash, target)
        self.add_flags(body)
        v1 = self.chance(0.25)
        if v1 and self.chance(0.1):
            body["keepIndividualCommits"] = self.one([True, False])
        if not v1 and self.chance(0.3):
            body["commitMeta"] = meta(self.random)
        if self.chance(0.2):
            body["message"] = self.one(MESSAGES)
        request = self.request_to("merge", target, v1=v1).with_json(body)
        if not self.is_doubtful(request, target):
            self.ask(replace(request, headers=self.commit_headers()))

    def transplant(self) -> None:
        source, target = self.name(), self.branch()
        log = self.world.log(self.head(source))
        count = min(len(log), self.one([1, 1, 1, 2, 3]))
        start = self.random.randrange(len(log) - count + 1)
        hashes = [entry.hash for entry in log[start : start + count]][::-1]
        picked = [*hashes]
        if self.chance(0.1):
            self.random.shuffle(picked)
        if self.chance(0.05):
            picked.append(self.hash_on(source))
        if self.chance(0.05) and picked:
            picked[0] += self.relative()
        body: Json = {"fromRefName": source, "hashesToTransplant": picked}
        if self.chance(0.05):
            body["fromRefName"] = "DETACHED"
        self.add_modes(body, self.head(source), target)
        self.add_flags(body)
        v1 = self.chance(0.25)
        if v1 and self.chance(0.1):
            body["keepIndividualCommits"] = self.one([True, False])
        if not v1 and self.chance(0.2):
            body["message"] = self.one(MESSAGES)
        request = self.request_to("transplant", target, v1=v1).with_json(body)
        if v1 and self.chance(0.3):
            request = request.with_query(message=self.one(MESSAGES))
        moved = self.moved_by_transplant(picked)
        if (
            not self.is_a_rename(request, moved, target)
            and not self.forgets(picked, target)
            and not self.breaks(request)
        ):
            self.ask(replace(request, headers=self.commit_headers()))

    def request_to(self, verb: str, target: str, *, v1: bool) -> Request:
        expected = self.hash_on(target)
        if v1:
            place = self.path("trees", "branch", target, verb, api="v1")
            return Request("POST", place, (("expectedHash", expected),))
        place = target if self.chance(0.02) else f"{target}@{expected}"
        return Request("POST", self.path("trees", place, "history", verb))

    def add_flags(self, body: Json) -> None:
        for flag in ("isDryRun", "isReturnConflictAsResult", "isFetchAdditionalInfo", "dryRun"):
            if self.chance(0.15):
                body[flag] = self.chance(0.8)

    def add_modes(self, body: Json, hash: str, target: str) -> None:
        if self.chance(0.25):
            body["defaultKeyMergeMode"] = self.one(BEHAVIORS)
        if self.chance(0.7) or hash not in self.world.hashes:
            return
        keys = self.differing(hash, self.head(target))
        chosen = self.random.sample(keys, min(len(keys), self.one([1, 2, 3, 10])))
        if self.chance(0.05):
            chosen.append(some_key(self.random))
        if self.chance(0.03) and chosen:
            chosen.append(chosen[0])
        body["keyMergeModes"] = [self.mode(key, target) for key in chosen]

    def mode(self, key: Key, target: str) -> Json:
        made: Json = {"key": key_json(key), "mergeBehavior": self.one(BEHAVIORS)}
        existing = self.world.state(self.head(target)).get(key)
        if existing is not None and self.chance(0.3):
            made["mergeBehavior"] = "NORMAL" if self.chance(0.8) else "FORCE"
            made["expectedTargetContent"] = existing
            if self.chance(0.1):
                made["expectedTargetContent"] = content(
                    self.random, existing["type"], key, existing["id"]
                )
            if self.chance(0.7):
                id = existing["id"] if self.chance(0.9) else None
                made["resolvedContent"] = content(self.random, existing["type"], key, id)
            elif self.chance(0.1):
                del made["expectedTargetContent"]
        return made

    def differing(self, one: str, other: str) -> list[Key]:
        left, right = self.world.state(one), self.world.state(other)
        return [key for key in {**left, **right} if left.get(key) != right.get(key)]

    # Faults of Nessie

    def is_doubtful(self, request: Request, target: str) -> bool:
        """Whether Nessie has a fault in this merge."""
        spec = request.json.get("fromHash")
        source = self.world.commit(spec) if spec is not None and not self.pair.twins else None
        if source is None:
            return False
        if source.hash == self.world.nothing:
            self.merge_nothing(request)
            return True
        moved = self.moved_by_merge(source.hash, target)
        return self.is_a_rename(request, moved, target) or self.has_no_clear_base(
            request, source.hash, target
        )

    def merge_nothing(self, request: Request) -> None:
        """Ask only Morag, which must change nothing: Nessie would empty the target."""
        reply = self.pair.ask_one(request)
        if reply.status >= 500 or (reply.status == 200 and reply.json["wasApplied"]):
            self.pair.blame(request, "a merge of nothing changed the target")
        self.pair.known.count(EMPTY_MERGE)
        self.world.refresh()

    def breaks(self, request: Request) -> bool:
        """Whether Nessie fails on a key that it left out of an earlier commit."""
        dry = self.pair.ask_one(request.with_json(request.json | _DRY), NESSIE)
        broken = dry.status == 500 and "expectedId" in dry.json["message"]
        if broken:
            self.pair.known.count(LOST_KEY)
        return broken

    def forgets(self, specs: list[str], target: str) -> bool:
        """Whether Nessie may leave out a whole commit, and then find other conflicts in the next.

        That happens if the target has all that a commit creates, or if all of it is dropped.
        """
        if target not in self.world.references or self.pair.twins:
            return False
        on_target = self.world.state(self.world.head(target))
        for spec in specs[:-1]:
            commit = self.world.commit(spec)
            if commit is None or not commit.parents:
                continue
            before, after = (self.world.state(h) for h in (commit.parents[0], commit.hash))
            changed = [k for k in {**before, **after} if before.get(k) != after.get(k)]
            if changed and all(before.get(key) != on_target.get(key) for key in changed):
                self.pair.known.count(TRANSPLANTED)
                return True
        return False

    def has_no_clear_base(self, request: Request, source: str, target: str) -> bool:
        """Whether two merge bases are equally good, or Nessie names a commit that is no base."""
        if target not in self.world.references:
            return False
        bases = self.world.bases(source, self.world.head(target))
        dry = self.pair.ask_one(request.with_json(request.json | _DRY), NESSIE)
        why = None
        if list(bases.values()).count(max(bases.values(), default=0)) > 1:
            why = EQUAL_BASES
        elif dry.status == 200 and dry.json["commonAncestor"] not in bases:
            why = WRONG_BASE
        if why is not None:
            self.pair.known.count(why)
        return why is not None

    def merge_a_rename(self) -> None:
        """Make a rename on a new branch, so that there is one to merge or transplant."""
        head = self.world.head(self.one(self.world.names("BRANCH")))
        state = self.world.state(head)
        tables = [key for key in state if state[key]["type"] != "NAMESPACE"]
        to = some_key(self.random)
        if self.pair.twins or not tables or to in state or to[:-1] not in {(), *state}:
            return
        key = self.one(tables)
        self.make(_RENAMED, head)
        operations = [
            {"type": "DELETE", "key": key_json(key)},
            {"type": "PUT", "key": key_json(to), "content": state[key]},
        ]
        body = {"commitMeta": {"message": "rename"}, "operations": operations}
        place = self.path("trees", f"{_RENAMED}@{head}", "history", "commit")
        done = self.pair.ask(Request("POST", place).with_json(body))
        made = done.json["targetBranch"]["hash"] if done.ok else head
        if done.ok:
            how = {"hashesToTransplant": [made]} if self.chance(0.5) else {"fromHash": made}
            self.try_rename(
                {"fromRefName": _RENAMED} | how, {key: None, to: state[key]["id"]}, head
            )
        self.pair.ask(Request("DELETE", self.path("trees", f"{_RENAMED}@{made}")))
        self.world.refresh()

    def make(self, name: str, at: str) -> None:
        made = Request("POST", self.path("trees"), (("name", name), ("type", "BRANCH")))
        self.pair.ask(made.with_json({"type": "DETACHED", "hash": at}))

    def is_a_rename(self, request: Request, moved: Moved, target: str) -> bool:
        """Whether Nessie would lose a table. Only Morag is asked then, and must keep it."""
        known = target in self.world.references and not _has_two_homes(moved)
        if moved and known and _is_plain(request.json):
            self.try_rename(request.json, moved, self.world.head(target))
        return bool(moved)

    def moved_by_merge(self, source: str, target: str) -> Moved:
        """The renames since the merge base."""
        if not self.world.may_have_renames(source) or target not in self.world.references:
            return {}
        bases = self.world.bases(source, self.world.head(target))
        if not bases:
            return {}
        return self.world.renames(max(bases, key=lambda base: bases[base]), source)

    def moved_by_transplant(self, specs: list[str]) -> Moved:
        moved: Moved = {}
        for spec in specs if not self.pair.twins else []:
            commit = self.world.commit(spec)
            if commit is not None and commit.parents:
                self.world.state(commit.parents[0])
                self.world.state(commit.hash)
                moved |= self.world.renames(commit.parents[0], commit.hash)
        return moved

    def try_rename(self, body: Json, moved: Moved, head: str) -> None:
        """Merge or transplant on a new branch in Morag, and check the content ids of its keys."""
        self.make(_SCRATCH, head)
        verb = "merge" if "fromHash" in body else "transplant"
        request = Request("POST", self.path("trees", f"{_SCRATCH}@{head}", "history", verb))
        request = request.with_json(body)
        reply = self.pair.ask_one(request)
        entries = Request("GET", self.path("trees", _SCRATCH, "entries"))
        found = self.pair.ask_one(entries).json["entries"]
        ids = {tuple(entry["name"]["elements"]): entry["contentId"] for entry in found}
        if reply.status == 200 and reply.json["wasApplied"]:
            if {key: ids.get(key) for key in moved} != moved:
                self.pair.blame(entries, f"a rename is lost: {moved} by {request}")
            else:
                self.pair.known.count(MERGED_RENAME)
        put_back = self.path("trees", f"{_SCRATCH}@{self.scratch_head()}")
        self.pair.ask_one(Request("PUT", put_back).with_json({"type": "DETACHED", "hash": head}))
        self.pair.ask(Request("DELETE", self.path("trees", f"{_SCRATCH}@{head}")))
        self.world.refresh()

    def scratch_head(self) -> str:
        answer = self.pair.ask_one(Request("GET", self.path("trees", _SCRATCH)))
        return str(answer.json["reference"]["hash"])


def _has_two_homes(moved: Moved) -> bool:
    """Whether a forced merge left one content under two keys, so that no result is expected."""
    ids = [id for id in moved.values() if id is not None]
    return len({*ids}) < len(ids)


def _is_plain(body: Json) -> bool:
    """Whether the request has no options that change the outcome."""
    special = ("defaultKeyMergeMode", "keyMergeModes", "isDryRun", "keepIndividualCommits")
    return not any(body.get(name) for name in special)
