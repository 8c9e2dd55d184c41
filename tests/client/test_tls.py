"""Connections that are secured, or should be."""

from __future__ import annotations

import ssl
import subprocess
from threading import Event
from typing import TYPE_CHECKING

import pytest

from morag import BadRequest
from morag.client import Client, ServerUnreachable
from tests.client.servers import COMMITTED, HASH, MAIN, Scripted, Talk, commit, forever

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for this host that nobody trusts, with its key, in one file."""
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(file), "-out", str(file.with_suffix(".crt"))]
    subprocess.run(command, check=True, capture_output=True)
    file.write_text(file.read_text() + file.with_suffix(".crt").read_text())
    return file


@pytest.fixture
def context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_a_certificate_is_trusted_by_its_authority(
    context: ssl.SSLContext, certificate: Path
) -> None:
    ca_file = str(certificate.with_suffix(".crt"))
    with Scripted(forever, context) as server, Client(server.uri, ca_file=ca_file) as client:
        for _ in range(3):
            assert client.references.get("main").hash == HASH
        assert server.connections == 1


def test_a_closed_connection_is_noticed_under_tls(
    context: ssl.SSLContext, certificate: Path
) -> None:
    closed = Event()

    def script(talk: Talk, number: int) -> None:
        talk.hear()
        talk.answer(MAIN)
        if number == 1:
            talk.hang_up()
            closed.set()
        else:
            talk.hear()
            talk.answer(COMMITTED)

    ca_file = str(certificate.with_suffix(".crt"))
    with Scripted(script, context) as server, Client(server.uri, ca_file=ca_file) as client:
        client.references.get("main")
        assert closed.wait(10)
        client.references.get("main")
        assert commit(client) == HASH
        assert server.connections == 2


def test_a_certificate_of_nobody_is_refused(context: ssl.SSLContext) -> None:
    told = r"certificate of .* is not trusted.*ca_file"
    with (
        Scripted(forever, context) as server,
        Client(server.uri) as client,
        pytest.raises(ServerUnreachable, match=told),
    ):
        client.config()


def test_a_certificate_for_another_host_is_refused(
    context: ssl.SSLContext, certificate: Path
) -> None:
    ca_file = str(certificate.with_suffix(".crt"))
    with Scripted(forever, context) as server:
        uri = server.uri.replace("127.0.0.1", "localhost")
        with pytest.raises(ServerUnreachable, match="not trusted"):
            Client(uri, ca_file=ca_file).config()


def test_https_where_http_is_spoken_is_told() -> None:
    def plain(talk: Talk, number: int) -> None:
        talk.answer(b"", "400 Bad Request")
        talk.hear()

    with Scripted(plain) as server:
        client = Client(server.uri.replace("http:", "https:"))
        with pytest.raises(ServerUnreachable, match="does not speak TLS as expected"):
            client.config()


def test_certificates_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    for name in ("missing", "empty"):
        with pytest.raises(BadRequest, match="cannot be read"):
            Client("https://127.0.0.1", ca_file=str(tmp_path / name))
