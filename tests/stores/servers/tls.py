"""TLS in front of a server without it, with a self-signed certificate."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from threading import Thread
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def tls(port: int, directory: Path) -> Iterator[tuple[int, Path]]:
    """A port on loopback that forwards TLS to `port`, and the certificate to trust."""
    certificate = _certificate(directory)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    async def serve(client: StreamReader, to_client: StreamWriter) -> None:
        server, to_server = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(_copy(client, to_server), _copy(server, to_client))
        finally:
            to_client.transport.abort()
            to_server.transport.abort()

    async def stop() -> None:
        listening.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    start = asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    listening = asyncio.run_coroutine_threadsafe(start, loop).result()
    try:
        yield listening.sockets[0].getsockname()[1], certificate
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _copy(source: StreamReader, target: StreamWriter) -> None:
    with suppress(ConnectionError):
        while some := await source.read(1 << 16):
            target.write(some)
            await target.drain()
    target.transport.abort()


def _certificate(directory: Path) -> Path:
    """A self-signed certificate for 127.0.0.1 in one file with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([]), datetime.now(UTC)
    loopback = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(loopback, critical=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    file = directory / "certificate.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    return file
