"""The library pynessie, and its command `nessie` with settings of its own."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any, Final

from click.testing import CliRunner

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # pynessie declares its fields in a deprecated way.
    import pynessie  # type: ignore[import-not-found]
    from pynessie import error as errors
    from pynessie import model
    from pynessie.cli import cli  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["API", "NessieCommand", "cli", "errors", "key", "model", "pynessie"]

API: Final = "/api/v1"
"""The only version that pynessie supports."""


class NessieCommand:
    """The command line of one user, whose settings are in `home`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._runner = CliRunner()

    def __call__(self, *args: str, input: str | None = None, editor: str = "false") -> str:
        """The output of a command that must succeed and that may open an `editor`."""
        code, output = self._run(args, input, editor)
        assert code == 0, output
        return output

    def json(self, *args: str) -> Any:
        return json.loads(self("--json", *args))

    def refuses(self, *args: str, input: str | None = None) -> Mapping[str, Any]:
        """The error of a command that must fail."""
        code, output = self._run(("--json", *args), input, "false")
        assert code == 1, output
        error: Mapping[str, Any] = json.loads(output.splitlines()[-1])
        return error

    def _run(self, args: tuple[str, ...], input: str | None, editor: str) -> tuple[int, str]:
        environment = {"NESSIEDIR": str(self.home), "EDITOR": editor, "VISUAL": editor}
        result = self._runner.invoke(
            cli, args, input, environment, catch_exceptions=False, standalone_mode=True
        )
        return result.exit_code, result.output


def key(*elements: str) -> Any:
    return model.ContentKey(list(elements))
