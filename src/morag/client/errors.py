"""What can go wrong on the way to a server, beside the errors that the server itself reports."""

from __future__ import annotations

from typing import ClassVar

from morag.errors import MoragError, ServiceUnavailable


class ServerUnreachable(ServiceUnavailable):
    """No answer came back. Nothing was changed: it was a read, or it was never sent."""


class OutcomeUnknown(ServerUnreachable):
    """A write was sent, and its answer was lost: it may have been done or not."""


class UnexpectedAnswer(MoragError):
    """An answer that is none of the API's: who said it to what, and with which HTTP status.

    `server_code` is the error code in the answer, if it had one. Code and status of the class are
    what a server would render if it passed the error on.
    """

    code: ClassVar[str] = "UNKNOWN"
    status: ClassVar[int] = 500

    def __init__(
        self, message: str, *, http_status: int, method: str, url: str, server_code: str = ""
    ) -> None:
        super().__init__(f"{method} {url} answered {http_status}: {message}")
        self.http_status = http_status
        self.method = method
        self.url = url
        self.server_code = server_code


class NotOffered(UnexpectedAnswer):
    """The server has nothing of the kind at all, as the original has no ref-log."""

    @classmethod
    def instead_of(cls, error: UnexpectedAnswer, message: str) -> UnexpectedAnswer:
        """What an answer of 404 means for one of Morag's extras; others stay what they are."""
        if error.http_status != 404:
            return error
        return cls(message, http_status=404, method=error.method, url=error.url)
