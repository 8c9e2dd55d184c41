"""Connections with TLS: trusted certificates, refused ones, and servers without TLS."""

from __future__ import annotations

import ssl
import subprocess
from threading import Event
from typing import TYPE_CHECKING

import pytest

from morag import BadRequest
from morag.client import Client, ServerUnreachable
from tests.client.scripted_server import (
    HASH,
    AcceptedConnection,
    ScriptedServer,
    answer_main,
    close_first,
    commit,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for this host with its key, in one file."""
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
    with (
        ScriptedServer(answer_main, context) as server,
        Client(server.uri, ca_file=ca_file) as client,
    ):
        for _ in range(3):
            assert client.references.get("main").hash == HASH
        assert server.connections == 1


def test_a_closed_connection_is_noticed_under_tls(
    context: ssl.SSLContext, certificate: Path
) -> None:
    closed, ca_file = Event(), str(certificate.with_suffix(".crt"))
    with (
        ScriptedServer(close_first(closed), context) as server,
        Client(server.uri, ca_file=ca_file) as client,
    ):
        client.references.get("main")
        assert closed.wait(10)
        client.references.get("main")
        assert commit(client) == HASH
        assert server.connections == 2


def test_a_self_signed_certificate_is_refused(context: ssl.SSLContext) -> None:
    message = r"certificate of .* is not trusted.*ca_file"
    with (
        ScriptedServer(answer_main, context) as server,
        Client(server.uri) as client,
        pytest.raises(ServerUnreachable, match=message),
    ):
        client.config()


def test_a_certificate_for_another_host_is_refused(
    context: ssl.SSLContext, certificate: Path
) -> None:
    ca_file = str(certificate.with_suffix(".crt"))
    with ScriptedServer(answer_main, context) as server:
        uri = server.uri.replace("127.0.0.1", "localhost")
        message = "is for another host .*: use a host name that the certificate names"
        with pytest.raises(ServerUnreachable, match=message):
            Client(uri, ca_file=ca_file).config()


def test_an_untrusted_certificate_behind_a_proxy_is_reported_as_such(
    context: ssl.SSLContext,
) -> None:
    def tunnel(connection: AcceptedConnection, number: int) -> None:
        connection.read_request()
        connection.answer(b"")
        connection.start_tls(context)

    with ScriptedServer(tunnel) as proxy, Client("https://catalog.invalid", proxy=proxy.uri) as c:
        message = r"certificate of https://catalog\.invalid is not trusted.*ca_file"
        with pytest.raises(ServerUnreachable, match=message):
            c.config()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_untrusted_certificate_of_the_proxy_is_reported_as_such(
    context: ssl.SSLContext, scheme: str
) -> None:
    message = "through the proxy .*certificate.*: check the proxy$"
    with (
        ScriptedServer(answer_main, context) as proxy,
        Client(f"{scheme}://catalog.invalid", proxy=proxy.uri) as client,
        pytest.raises(ServerUnreachable, match=message),
    ):
        client.config()


def test_a_proxy_of_scheme_https_forwards_plain_http(
    monkeypatch: pytest.MonkeyPatch, context: ssl.SSLContext, certificate: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.with_suffix(".crt")))
    with (
        ScriptedServer(answer_main, context) as proxy,
        Client("http://catalog.invalid", proxy=proxy.uri) as client,
    ):
        assert client.references.get("main").hash == HASH


def test_https_to_a_server_without_tls_is_reported() -> None:
    def plain(connection: AcceptedConnection, number: int) -> None:
        connection.answer(b"", "400 Bad Request")
        connection.read_request()

    with ScriptedServer(plain) as server:
        client = Client(server.uri.replace("http:", "https:"))
        with pytest.raises(ServerUnreachable, match="does not speak TLS as expected"):
            client.config()


def test_http_to_a_server_with_tls_is_reported(context: ssl.SSLContext) -> None:
    with ScriptedServer(answer_main, context) as server:
        client = Client(server.uri.replace("https:", "http:"))
        with pytest.raises(ServerUnreachable, match="or it expects https"):
            client.config()


def test_certificates_are_passed_in_one_way(context: ssl.SSLContext, certificate: Path) -> None:
    with pytest.raises(BadRequest, match="ca_file or tls, not both"):
        Client("https://127.0.0.1", ca_file=str(certificate), tls=context)


def test_certificates_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    for name in ("missing", "empty"):
        with pytest.raises(BadRequest, match="cannot be read"):
            Client("https://127.0.0.1", ca_file=str(tmp_path / name))
