"""nginx with the configuration of `deploy/nginx`, in front of servers on this machine."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
from signal import SIGTERM
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from tests.deploy.tools import DEPLOY, nginx
from tests.server_process import PATIENCE_SECONDS, Answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from tests.server_process import Address

COMPOSED: Final = ("morag-1:19120", "morag-2:19120")
"""The addresses of servers in the configuration."""


class Nginx:
    """nginx on loopback during the `with` block, with other addresses, directories and times."""

    def __init__(self, directory: Path, servers: Sequence[Address], fail_seconds: int = 1) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address: Address = "127.0.0.1", free.getsockname()[1]
        self._configuration = directory / "nginx.conf"
        self._output = directory / "nginx-output"
        changes = {
            "listen 19120;": f"listen 127.0.0.1:{self.address[1]};",
            " /tmp/": f" {directory}/",
            "fail_timeout=10s": f"fail_timeout={fail_seconds}s",
            **{
                name: f"{host}:{port}" for name, (host, port) in zip(COMPOSED, servers, strict=True)
            },
        }
        write_changed(directory, changes)

    def __enter__(self) -> Nginx:
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                nginx_command(self._configuration),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        end = monotonic() + PATIENCE_SECONDS
        while not self._listens():
            if self._process.poll() is not None or monotonic() > end:
                self._stop()
                raise AssertionError(f"nginx did not start: {self._output.read_text()}")
            sleep(0.02)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()
        if error is not None:
            error.add_note(f"output of nginx:\n{self._output.read_text()[-4000:]}")

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request on a new connection."""
        connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE_SECONDS)
        try:
            sent = None if body is None else json.dumps(body).encode()
            types = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, path, sent, {**types, **(headers or {})})
            answer = connection.getresponse()
            received = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, received, answer.read())
        finally:
            connection.close()

    def request_json(self, method: str, path: str, body: object = None) -> Any:
        """The JSON body of a response, which must have status 200."""
        answer = self.request(method, path, body)
        assert answer.status == 200, f"{method} {path}: {answer.status} {answer.body[:500]!r}"
        return json.loads(answer.body)

    def branches(self) -> list[str]:
        """The branch that selected the server of each request, in order."""
        return re.findall(r' for "(.+)"\n', self._output.read_text())

    def _listens(self) -> bool:
        try:
            socket.create_connection(self.address, timeout=1).close()
        except OSError:
            return False
        return True

    def _stop(self) -> None:
        self._process.send_signal(SIGTERM)
        try:
            self._process.wait(PATIENCE_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()


def nginx_command(configuration: Path, *arguments: str) -> list[str]:
    # As root, nginx would switch to a user that cannot read the directories of tests.
    user = "user root; " if os.geteuid() == 0 else ""
    command = [str(nginx()), "-c", str(configuration), "-p", str(configuration.parent)]
    return [*command, "-g", f"{user}daemon off;", *arguments]


def write_changed(
    directory: Path, changes: Mapping[str, str], given: Mapping[str, str] | None = None
) -> None:
    """Write the configuration with changes. Each change must apply to some file."""
    texts = given or {path.name: path.read_text() for path in (DEPLOY / "nginx").glob("*.conf")}
    for old, new in changes.items():
        assert any(old in text for text in texts.values()), (
            f"the configuration of nginx has no {old!r}"
        )
        texts = {name: text.replace(old, new) for name, text in texts.items()}
    for name, text in texts.items():
        (directory / name).write_text(text)
