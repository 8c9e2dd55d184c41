"""Errors of the connection to a server, in addition to those that the server reports."""

from __future__ import annotations

from typing import ClassVar, Final

from morag.errors import MoragError, ServiceUnavailable

OUTCOME_UNKNOWN: Final = "It is unknown whether the change was made: check before you repeat it"


class ServerUnreachable(ServiceUnavailable):
    """No response arrived. Nothing was changed: it was a read, or it was never sent."""


class OutcomeUnknown(ServerUnreachable):
    """A write was sent, and no usable response arrived: it may have been executed or not."""


class UnexpectedAnswer(MoragError):
    """A response that is not one of the API, with its URL and HTTP status.

    `server_code` is the error code in the response, if it has one. `code` and `status` are those of
    an internal error, for a server that renders this exception.
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


class UnexpectedAnswerToWrite(UnexpectedAnswer, OutcomeUnknown):
    """A response to a write from which the client cannot know whether the write was executed.

    It is an internal error of the server, or does not come from the server, but from a proxy, for
    example.
    """


class NotOffered(UnexpectedAnswer):
    """The server does not offer the call: Nessie has no ref-log, for example."""

    @classmethod
    def instead_of(cls, error: UnexpectedAnswer, message: str) -> UnexpectedAnswer:
        """The error for a 404 of one of Morag's own endpoints; other errors stay."""
        if error.http_status != 404:
            return error
        return cls(message, http_status=404, method=error.method, url=error.url)
