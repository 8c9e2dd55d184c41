"""Every error the catalog raises, with what each one means to a client.

A layer raises the most specific error it can and knows nothing of HTTP. The edge renders it once,
and the client turns the code back into the same class through `BY_CODE`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.model.conflicts import Conflict
    from morag.model.keys import ContentKey

BY_CODE: dict[str, type[MoragError]] = {}


class MoragError(Exception):
    """Something the caller can act on. Bugs raise anything else and become UNKNOWN/500.

    The class that first names a code stands for it in `BY_CODE`; a subclass without a code is a
    finer word for the same thing.
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
    """The request cannot be right, whatever the repository holds."""


class StoreUrlInvalid(BadRequest):
    """A store URL that names no backend, or a backend that refuses its options."""


class StoreReadOnly(BadRequest):
    """A change was asked of a store that was opened to be read only."""


class Forbidden(MoragError, code="FORBIDDEN", status=403):
    """The request is not let in, whatever it asks for."""


class ReferenceNotFound(MoragError, code="REFERENCE_NOT_FOUND", status=404):
    """A reference, or a commit, that is not there."""

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
    """An error about one key, which it carries."""

    def __init__(self, message: str, key: ContentKey | None = None) -> None:
        super().__init__(message)
        self.key = key


class ContentNotFound(AboutKey, code="CONTENT_NOT_FOUND", status=404):
    """A key that holds nothing on the commit asked."""


class NamespaceNotFound(AboutKey, code="NAMESPACE_NOT_FOUND", status=404):
    """No namespace of that name."""


class NamespaceAlreadyExists(AboutKey, code="NAMESPACE_ALREADY_EXISTS", status=409):
    """The name is taken, by a namespace or by other content."""


class NamespaceNotEmpty(AboutKey, code="NAMESPACE_NOT_EMPTY", status=409):
    """A namespace goes last, after everything in it."""


class ReferenceAlreadyExists(MoragError, code="REFERENCE_ALREADY_EXISTS", status=409):
    @classmethod
    def named(cls, name: str) -> ReferenceAlreadyExists:
        return cls(f"Named reference '{name}' already exists.")


class ReferenceConflict(MoragError, code="REFERENCE_CONFLICT", status=409):
    """A change lost against what is already there. Carries all conflicts, never only the first."""

    def __init__(self, message: str, conflicts: Sequence[Conflict] = ()) -> None:
        super().__init__(message)
        self.conflicts = tuple(conflicts)

    @classmethod
    def of(cls, conflicts: Sequence[Conflict]) -> ReferenceConflict:
        """One conflict speaks for itself; several are listed in one sentence."""
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
    """A request body that is not JSON by its own account."""


class RequestTooLarge(MoragError, code="REQUEST_TOO_LARGE", status=413):
    """More than the server is set to read at once. The original has no such limit."""


class ServiceUnavailable(MoragError, code="SERVICE_UNAVAILABLE", status=503):
    """The store did not let the work through in time; the same call may succeed later."""


class RetriesExhausted(ServiceUnavailable):
    """Others kept moving the reference until the commit's time was up."""


class StoreBusy(ServiceUnavailable):
    """The database gave up on a write that may succeed when tried again; its outcome is unknown."""


class StoreThrottled(StoreBusy, code="TOO_MANY_REQUESTS", status=429):
    """The database takes fewer requests than it gets, and stayed so for as long as we tried."""


class StoreUnreachable(StoreBusy):
    """The database does not answer: it is down, or the way to it is cut."""


class StoreCannotWrite(ServiceUnavailable):
    """The disk is full, failing or read-only: nothing was written, and reads still work."""


class StoreLocked(ServiceUnavailable):
    """Another process has the embedded store open."""


class RepositoryCorrupt(MoragError, code="REPOSITORY_CORRUPT", status=500):
    """Something stored is missing, damaged or unfinished. Nessie has no code of its own for it.

    Its clients take a code that they do not know for an internal error of the server, and show the
    message.
    """

    @classmethod
    def found(cls, where: str, problem: str) -> RepositoryCorrupt:
        """Damage in one place, and what is left to do about it."""
        return cls(
            f"{where} {problem}; restore the store from a backup. "
            "Everything that does not need it can still be used"
        )

    @classmethod
    def object(cls, id: bytes, problem: str) -> RepositoryCorrupt:
        return cls.found(f"Object {id.hex()}", problem)
