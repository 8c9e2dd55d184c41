"""Every error that the catalog raises, with its code and its HTTP status.

A layer raises the most specific error it can and knows nothing about HTTP. The server renders it
in one place, and the client finds the same class by the code in `BY_CODE`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.model.conflicts import Conflict
    from morag.model.keys import ContentKey

BY_CODE: dict[str, type[MoragError]] = {}


class MoragError(Exception):
    """An error that the caller can act on. All other exceptions are bugs, rendered as UNKNOWN/500.

    `BY_CODE` has the class that declares a code. A subclass without a code of its own is a special
    case with the same code and status.
    """

    code: ClassVar[str]
    status: ClassVar[int]

    def __init_subclass__(cls, *, code: str = "", status: int = 0, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if code:
            assert code not in BY_CODE, f"{code} is already {BY_CODE[code].__name__}"
            cls.code, cls.status = code, status
            BY_CODE[code] = cls


class BadRequest(MoragError, code="BAD_REQUEST", status=400):
    """The request is invalid, whatever the repository contains."""


class StoreUrlInvalid(BadRequest):
    """A store URL with an unknown scheme, or with options that the engine refuses."""


class RepositoryMissing(StoreUrlInvalid):
    """A store without the repository, where one must exist."""


class RepositoryExists(BadRequest):
    """A store with the repository, where it must not exist yet."""


class StoreReadOnly(BadRequest):
    """A change of a store that was opened read-only."""

    def __init__(
        self,
        message: str = "This store was opened read-only; open it without `read_only` to change it",
    ) -> None:
        super().__init__(message)


class ArchiveInvalid(BadRequest):
    """Export files that are damaged, incomplete or not what they should be."""


class Forbidden(MoragError, code="FORBIDDEN", status=403):
    """The server does not admit the request, whatever it is for."""


class ReferenceNotFound(MoragError, code="REFERENCE_NOT_FOUND", status=404):
    """The reference or the commit does not exist."""

    @classmethod
    def named(cls, name: str) -> ReferenceNotFound:
        return cls(f"Named reference '{name}' not found")

    @classmethod
    def commit(cls, hash: str) -> ReferenceNotFound:
        return cls(f"Commit '{hash}' not found")

    @classmethod
    def commit_on(cls, name: str, hash: str) -> ReferenceNotFound:
        return cls(f"Could not find commit '{hash}' in reference '{name}'.")


class AboutKey(MoragError):
    """An error about one key, which is in `key`."""

    def __init__(self, message: str, key: ContentKey | None = None) -> None:
        super().__init__(message)
        self.key = key


class ContentNotFound(AboutKey, code="CONTENT_NOT_FOUND", status=404):
    """The key has no content at the requested commit."""


class NamespaceNotFound(AboutKey, code="NAMESPACE_NOT_FOUND", status=404):
    """There is no namespace of that name."""


class NamespaceAlreadyExists(AboutKey, code="NAMESPACE_ALREADY_EXISTS", status=409):
    """The key already has content: a namespace or something else."""


class NamespaceNotEmpty(AboutKey, code="NAMESPACE_NOT_EMPTY", status=409):
    """The namespace cannot be deleted while keys exist below it."""


class ReferenceAlreadyExists(MoragError, code="REFERENCE_ALREADY_EXISTS", status=409):
    @classmethod
    def named(cls, name: str) -> ReferenceAlreadyExists:
        return cls(f"Named reference '{name}' already exists.")


class ReferenceConflict(MoragError, code="REFERENCE_CONFLICT", status=409):
    """A change conflicts with the current state. `conflicts` has all conflicts, not one."""

    def __init__(self, message: str, conflicts: Sequence[Conflict] = ()) -> None:
        super().__init__(message)
        self.conflicts = tuple(conflicts)

    @classmethod
    def of(cls, conflicts: Sequence[Conflict]) -> ReferenceConflict:
        """The message is that of a single conflict, or one sentence that lists several."""
        if len(conflicts) == 1:
            text = conflicts[0].message
            return cls(f"{text[:1].upper()}{text[1:]}.", conflicts)
        listed = ", ".join(c.message for c in conflicts)
        return cls(
            "There are multiple conflicts that prevent committing the provided operations: "
            f"{listed}.",
            conflicts,
        )


class UnsupportedMediaType(MoragError, code="UNSUPPORTED_MEDIA_TYPE", status=415):
    """The content type of the request body is not JSON."""


class RequestTooLarge(MoragError, code="REQUEST_TOO_LARGE", status=413):
    """The request exceeds a limit in the server's settings. Nessie has no such limit."""


class ServiceUnavailable(MoragError, code="SERVICE_UNAVAILABLE", status=503):
    """The store did not complete the work in time; the same call may succeed later."""


class RetriesExhausted(ServiceUnavailable):
    """Concurrent changes kept moving the reference until the time-out of the commit."""


class StoreBusy(ServiceUnavailable):
    """The database gave up on a write. Its outcome is unknown, and a retry may succeed."""


class StoreThrottled(StoreBusy, code="TOO_MANY_REQUESTS", status=429):
    """The database rejected requests because of its rate limit until the retries ran out."""


class StoreUnreachable(StoreBusy):
    """The database does not respond: it is down, or the network is."""


class StoreCannotWrite(ServiceUnavailable):
    """The disk is full, failing or read-only: nothing was written, and reads still work."""


class StoreLocked(ServiceUnavailable):
    """Another process has the embedded store open."""


class ImportUnderWay(ServiceUnavailable):
    """A repository whose import has not ended: references are missing, and commits may be."""

    def __init__(
        self,
        message: str = (
            "An import into this repository has not ended: go on with `morag import ... --resume`, "
            "or start again with `morag import ... --erase --confirm NAME`"
        ),
    ) -> None:
        super().__init__(message)


class CopyUnderWay(ImportUnderWay):
    """A repository whose copy has not ended."""

    def __init__(self) -> None:
        super().__init__(
            "A copy into this repository has not ended: go on with the same `morag spark copy`, or "
            "remove it with `morag admin erase`"
        )


class RepositoryCorrupt(MoragError, code="REPOSITORY_CORRUPT", status=500):
    """A stored object or ref is missing, damaged or incomplete. Nessie has no code for this.

    Nessie's clients treat an unknown code as an internal error of the server and show the message.
    """

    @classmethod
    def found(cls, where: str, problem: str) -> RepositoryCorrupt:
        """Damage at `where`, with the advice to restore a backup."""
        return cls(
            f"{where} {problem}; restore the store from a backup. "
            "Everything that does not need it can still be used"
        )

    @classmethod
    def object(cls, id: bytes, problem: str) -> RepositoryCorrupt:
        return cls.found(f"Object {id.hex()}", problem)
