"""The address of the client of a connection, which may come from a proxy."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Final

from morag.api.http import Client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.api.http import Header

# A longer chain of proxies is forged, and parsing all of it would take milliseconds.
_MOST_HOPS: Final = 16
_NETWORK_BITS: Final = 64
_CACHED_ADDRESSES: Final = 4096


class ClientAddresses:
    """Accepts the part of `X-Forwarded-For` that trusted proxies wrote.

    Each proxy appends the address of its client, so the list is read from the end: the first
    address that is no trusted proxy is the client. Everything before it may be forged. `Forwarded`
    is ignored: a proxy that writes one of the two headers passes the other one on unchanged.
    """

    def __init__(self, trusted: tuple[str, ...]) -> None:
        self._networks = tuple(ip_network(one) for one in trusted)
        self._is_trusted = lru_cache(_CACHED_ADDRESSES)(self._is_in_trusted_network)

    def client(self, peer: Client, headers: Sequence[Header]) -> Client:
        """The client of a request; `peer` is the one at the other end of the connection."""
        if not self._networks:
            return peer
        address = self.of(peer.address, headers)
        return peer if address == peer.address else client_at(address)

    def of(self, peer: str, headers: Sequence[Header]) -> str:
        """The client's address; `peer` is the other end of the connection."""
        if not self._networks or not self._is_trusted(peer):
            return peer
        forwarded = b",".join(value for name, value in headers if name == b"x-forwarded-for")
        hops = forwarded.decode("latin-1").rsplit(",", _MOST_HOPS)[-_MOST_HOPS:]
        client = peer
        for hop in reversed(hops):
            address = _address(hop)
            if address is None:
                break
            client = str(address)
            if not self._is_trusted(client):
                break
        return client

    def _is_in_trusted_network(self, text: str) -> bool:
        address = _address(text)
        return address is not None and any(address in network for network in self._networks)


def client_at(address: str) -> Client:
    return Client(address, network=_network(address) if ":" in address else address)


@lru_cache(_CACHED_ADDRESSES)
def _network(text: str) -> str:
    """The network of an address: in IPv6 the first 64 bits, because a customer gets all of that."""
    address = _address(text)
    if not isinstance(address, IPv6Address):
        return text if address is None else str(address)
    host_bits = address.max_prefixlen - _NETWORK_BITS
    return f"{IPv6Address(int(address) >> host_bits << host_bits)}/{_NETWORK_BITS}"


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse `10.0.0.1`, `10.0.0.1:4711`, `::1` or `[::1]:4711`; None for all other texts."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address
