"""The states of a connection. Three parts of it change independently of each other.

- Reading, `RequestParser.state`: a `ReadState`.
- Answering, `Connection._current`: None, or the request that is being answered. Its `Later` runs,
  or, if `_stream` is set, its response is sent in pieces. Later requests are in `_waiting`.
- Closing, `Connection._phase`: a `Phase`.

Two flags mirror other objects: `Connection._paused` is set while the transport's write buffer is
full, and `_in_backlog` while the connection waits in the `Backlog`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class ReadState(Enum):
    """How far the next request was read.

    | from | to | when |
    |---|---|---|
    | IDLE | HEAD | the first bytes of a request arrive |
    | IDLE, HEAD | BODY | its head is complete |
    | BODY | IDLE | the request is complete |
    | any | ENDED | the last request was read or refused, or the connection is closing |
    """

    IDLE = "no byte of it has arrived"
    HEAD = "a part of its head has arrived"
    BODY = "its head is complete, its body is not"
    ENDED = "no further request is read, and further data is ignored"


class Phase(Enum):
    """How far a connection is from its end.

    | from | to | when |
    |---|---|---|
    | OPEN | DRAINING | the client closes its half, or the server stops |
    | OPEN, DRAINING | LINGERING | a request is refused, and all before it are answered |
    | any | CLOSED | the last response is written, a limit is exceeded, or the connection is lost |
    """

    OPEN = "requests are read and answered"
    DRAINING = "accepted requests are answered, then the connection is closed"
    LINGERING = "the last response is written, the server's half is closed, further data is ignored"
    CLOSED = "the transport is closed, or closes as soon as it has sent everything"


# Globals, because looking up a member of an enum takes time in each request.
IDLE: Final = ReadState.IDLE
HEAD: Final = ReadState.HEAD
BODY: Final = ReadState.BODY
ENDED: Final = ReadState.ENDED

OPEN: Final = Phase.OPEN
DRAINING: Final = Phase.DRAINING
LINGERING: Final = Phase.LINGERING
CLOSED: Final = Phase.CLOSED
