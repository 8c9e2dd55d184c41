"""A client behind a proxy is known by its own address, and no client can claim another one."""

from __future__ import annotations

import pytest

from morag.api.http import Client
from morag.server.client_address import ClientAddresses, client_at
from tests.api.test_fair_queue import Scene

PROXIES = ClientAddresses(("10.0.0.0/8", "2001:db8::/32", "192.0.2.7"))


def test_without_trusted_proxies_forwarded_addresses_are_ignored() -> None:
    believed = ClientAddresses(()).of("10.0.0.1", [(b"x-forwarded-for", b"1.2.3.4")])
    assert believed == "10.0.0.1"


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.9", b"1.2.3.4", "203.0.113.9"),
        ("-", b"1.2.3.4", "-"),
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", b"", "10.0.0.1"),
        ("10.0.0.1", b"1.2.3.4", "1.2.3.4"),
        ("::ffff:10.0.0.1", b"1.2.3.4", "1.2.3.4"),
        ("192.0.2.7", b"1.2.3.4", "1.2.3.4"),
        ("192.0.2.8", b"1.2.3.4", "192.0.2.8"),
        ("2001:db8::1", b"2001:DB9::0001", "2001:db9::1"),
        ("10.0.0.1", b"6.6.6.6, 1.2.3.4", "1.2.3.4"),
        ("10.0.0.1", b"6.6.6.6, 1.2.3.4 ,10.0.0.2", "1.2.3.4"),
        ("10.0.0.1", b"10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", b"1.2.3.4:4711", "1.2.3.4"),
        ("10.0.0.1", b"[2001:db9::1]:4711", "2001:db9::1"),
        ("10.0.0.1", b"::ffff:1.2.3.4", "1.2.3.4"),
        ("10.0.0.1", b"6.6.6.6, unknown", "10.0.0.1"),
        ("10.0.0.1", b"6.6.6.6, unknown, 10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", b"1.2.3.4" + 1000 * b", 10.0.0.2", "10.0.0.2"),
    ],
)
def test_the_last_address_that_is_no_trusted_proxy(
    peer: str, forwarded: bytes | None, client: str
) -> None:
    headers = [] if forwarded is None else [(b"x-forwarded-for", forwarded)]
    assert PROXIES.of(peer, headers) == client


def test_several_headers_are_one_list() -> None:
    headers = [(b"x-forwarded-for", b"6.6.6.6"), (b"x-forwarded-for", b"1.2.3.4,10.0.0.2")]
    assert PROXIES.of("10.0.0.1", headers) == "1.2.3.4"


def test_the_header_forwarded_is_ignored() -> None:
    headers = [(b"forwarded", b"for=6.6.6.6"), (b"x-forwarded-for", b"1.2.3.4")]
    assert PROXIES.of("10.0.0.1", headers) == "1.2.3.4"


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("1.2.3.4", "1.2.3.4"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("2001:db9:1:2:3:4:5:6", "2001:db9:1:2::/64"),
        ("2001:db9:1:2::", "2001:db9:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("-", "-"),
    ],
)
def test_a_network_of_64_bits_is_one_client(address: str, network: str) -> None:
    client = client_at(address)
    assert (client.address, client.network) == (address, network)


def test_a_forwarded_client_has_the_network_of_its_own_address() -> None:
    headers = [(b"x-forwarded-for", b"2001:db9:1:2:3:4:5:6")]
    client = PROXIES.client(Client("10.0.0.1"), headers)
    assert (client.address, client.network) == ("2001:db9:1:2:3:4:5:6", "2001:db9:1:2::/64")


def test_many_addresses_of_one_network_take_turns_as_one_client() -> None:
    scene = Scene(1)
    for number in range(10):
        scene.add(client_at(f"2001:db9::{number:x}"), "greedy")
    scene.add(client_at("2001:db9:0:1::1"), "modest")
    scene.run_all()
    assert scene.done.index("modest") < 3
