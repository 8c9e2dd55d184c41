"""The sockets that a server listens on, and its URL."""

from __future__ import annotations

import errno
import socket
import ssl
from ipaddress import ip_address
from typing import Final

from morag.errors import ServiceUnavailable
from morag.masking import masked

_BACKLOG: Final = 2048
_BEYOND_CONNECTIONS: Final = 1024  # Files of the store, and a reserve.


class CannotServe(ServiceUnavailable):
    """The server cannot start; the message gives the reason and a remedy."""


def bound(host: str, port: int) -> list[socket.socket]:
    """One socket for each address of the host, all with the same port."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotServe(
            f"Cannot listen on host '{masked(host)}' ({error}); set --host to an address of"
            " this machine"
        ) from None
    sockets: list[socket.socket] = []
    problems: list[OSError] = []
    for family, _, _, _, address in dict.fromkeys(found):
        taken = sockets[0].getsockname()[1] if sockets else port
        try:
            sockets.append(_bound(family, (address[0], taken, *address[2:])))
        except OSError as error:
            problems.append(error)
    # A machine without IPv6 still resolves names to it. A port in use fails on some addresses only.
    fatal = [p for p in problems if not sockets or p.errno in (errno.EADDRINUSE, errno.EACCES)]
    if fatal:
        for listening in sockets:
            listening.close()
        raise CannotServe(_explained(host, port, fatal[0]))
    return sockets


def are_loopback(sockets: list[socket.socket]) -> bool:
    """Whether only this machine can reach them."""
    return all(ip_address(listening.getsockname()[0]).is_loopback for listening in sockets)


def url_of(host: str, port: int, tls: bool) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{port}"


def check_tls(certificate: str, key: str) -> None:
    """Refuse unusable files before anything is started."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key or None, password=_no_password)
    except (OSError, ValueError) as error:
        raise CannotServe(
            f"Cannot use the certificate '{certificate}'"
            + (f" with the key '{key}'" if key else "")
            + f" ({error}); --tls-cert and --tls-key name PEM files, the key without a password"
        ) from None


def allow_files(connections: int) -> None:
    """Raise the limit of open files: each connection is one, and the usual limit is low."""
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _BEYOND_CONNECTIONS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _bound(family: int, address: tuple[object, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        # Only listening proves that no other process uses the port.
        listening.listen(_BACKLOG)
        listening.set_inheritable(True)
    except BaseException:
        listening.close()
        raise
    return listening


def _explained(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} of {host} is in use; stop the program that uses it, or set --port to"
            " another one (0 for any free port)"
        )
    if error.errno == errno.EACCES:
        return f"Port {port} of {host} needs privileges; set --port to 1024 or above"
    advice = "set --host to an address of this machine"
    return f"Cannot listen on {host} port {port} ({error}); {advice}"


def _no_password() -> str:
    raise ValueError("the key has a password")
