"""pynessie as its users meet it: the library, and the command `nessie` with its settings."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any, Final

from click.testing import CliRunner

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # It declares its fields in a way that is on its way out.
    import pynessie  # type: ignore[import-not-found]
    from pynessie import error as errors
    from pynessie import model
    from pynessie.cli import cli  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["API", "Nessie", "cli", "errors", "key", "model", "pynessie"]

API: Final = "/api/v1"
"""The only one that it speaks."""


class Nessie:
    """The command line of one user, whose settings lie in `home`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._runner = CliRunner()

    def __call__(self, *args: str, input: str | None = None, editor: str = "false") -> str:
        """What a command says, once it succeeded. Where it opens an editor, that is `editor`."""
        code, said = self._run(args, input, editor)
        assert code == 0, said
        return said

    def json(self, *args: str) -> Any:
        return json.loads(self("--json", *args))

    def refuses(self, *args: str, input: str | None = None) -> Mapping[str, Any]:
        """How a command that must fail explains it."""
        code, said = self._run(("--json", *args), input, "false")
        assert code == 1, said
        explained: Mapping[str, Any] = json.loads(said.splitlines()[-1])
        return explained

    def _run(self, args: tuple[str, ...], input: str | None, editor: str) -> tuple[int, str]:
        environment = {"NESSIEDIR": str(self.home), "EDITOR": editor, "VISUAL": editor}
        result = self._runner.invoke(
            cli, args, input, environment, catch_exceptions=False, standalone_mode=True
        )
        return result.exit_code, result.output


def key(*elements: str) -> Any:
    return model.ContentKey(list(elements))
