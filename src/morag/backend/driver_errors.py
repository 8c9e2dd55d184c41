"""Tables that translate the errors of a database driver to the errors of backends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator


class Meaning(Struct, frozen=True):
    """One row of a table. It fits a driver error that meets all conditions of the row."""

    error: type[Exception]
    """The error to raise instead of the driver's."""
    message: str
    """`{address}` is the address of the store, `{error}` the text of the driver's error."""
    types: tuple[type[BaseException], ...] = ()
    """The driver's error, or one of its causes, is of one of these types."""
    codes: frozenset[object] = frozenset()
    """The driver's code is one of these."""
    words: tuple[str, ...] = ()
    """The text of the driver's error contains one of these, where the driver gives no code."""

    def fits(self, code: object, text: str, causes: Iterable[BaseException | None]) -> bool:
        return (
            (not self.types or any(isinstance(cause, self.types) for cause in causes))
            and (not self.codes or code in self.codes)
            and (not self.words or any(words in text for words in self.words))
        )


class ErrorTable(Struct, frozen=True):
    """The meanings of the errors of one driver. The first row that fits counts.

    A driver error that no row fits is raised unchanged. Then the outcome of a write is unknown.
    """

    raised: tuple[type[Exception], ...]
    """The base classes of the driver's errors."""
    meanings: tuple[Meaning, ...]
    code: Callable[[Exception], object] = lambda _: None
    text: Callable[[Exception], str] = str
    causes: Callable[[Exception], Iterable[BaseException | None]] = lambda error: (error,)

    def translate(self, error: Exception, address: object = "") -> Exception:
        """The error to raise instead of a driver error; the same error if no row fits it."""
        code, text, causes = self.code(error), self.text(error), list(self.causes(error))
        for row in self.meanings:
            if row.fits(code, text, causes):
                return row.error(row.message.format(address=address, error=text))
        return error

    @contextmanager
    def translating(self, address: object = "") -> Iterator[None]:
        """Raise the translated error instead of the driver's."""
        try:
            yield
        except self.raised as error:
            meaning = self.translate(error, address)
            if meaning is error:
                raise
            raise meaning from error
