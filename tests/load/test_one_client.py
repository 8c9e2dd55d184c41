"""One greedy or unlucky client must not make others wait or the server grow."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pytest

from tests.server_process import Served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Without the limits, others wait for 4 to 60 seconds, and the server grows by gigabytes.
SHORT_WAIT_SECONDS: Final = 2.0
NOTICED_SECONDS: Final = 6.0  # Hundreds of clients disconnected; their listings take a minute.
TIMES_AS_LONG: Final = 20  # Times the wait of a single client on the same busy machine.
GROWTH_BYTES: Final = 300 << 20

ENTRIES: Final = 30_000
ENTRIES_AT_ONCE: Final = 10_000
SMALL_BUFFER_BYTES: Final = 32 * 1024
LARGE_LISTING: Final = "/api/v2/trees/main/entries?content=true"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose branch `main` has many entries, and `small` has one."""
    with Served(tmp_path_factory.mktemp("served"), quiet=True) as server:
        main = post(server, "/api/v2/trees/main@{}/history/commit", "main", commit("first"))
        post(server, "/api/v2/trees?name=small&type=BRANCH", "main", main["targetBranch"])
        for start in range(0, ENTRIES, ENTRIES_AT_ONCE):
            names = [f"table-{n:06}" for n in range(start, start + ENTRIES_AT_ONCE)]
            post(server, "/api/v2/trees/main@{}/history/commit", "main", commit(*names))
        yield server


@pytest.mark.parametrize("count", [1, 6])
def test_bodies_that_are_refused_are_cheap(server: Served, count: int) -> None:
    """Compressed bodies that are large when unpacked, invalid, and of a shape from which lenient
    reading would make millions of objects."""
    content = b'{"type":"FOO","zz":[' + 10_000_000 * b"[]," + b"[]]}"
    bomb = gzip.compress(
        b'{"commitMeta":{"message":"m"},"operations":[{"type":"PUT","key":{"elements":["a"]},'
        b'"content":' + content + b"}]}",
        compresslevel=6,
    )
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    path = f"/api/v2/trees/main@{head(server, 'main')}/history/commit"
    answers: list[int] = []

    def refused() -> None:
        answers.append(server.ask("POST", path, bomb, headers).status)

    before = server.resident_bytes()
    with watching(server) as watched, together(refused, count):
        pass
    assert set(answers) <= {400, 413, 503}
    check_wait(server, watched.longest_wait_seconds)
    assert watched.most_resident_bytes - before < GROWTH_BYTES


def test_bodies_of_many_short_values_do_not_exhaust_memory(server: Served) -> None:
    """Valid bodies that are ten times as large when decoded. Without limits, four took 1.2 GB."""
    properties = ",".join(f'"{number:x}":""' for number in range(190_000))
    operation = (
        '{"type":"PUT","key":{"elements":["a%d"]},"content":'
        '{"type":"NAMESPACE","elements":["a%d"],"properties":{' + properties + "}}}"
    )
    operations = ",".join(operation % (number, number) for number in range(16))
    body = f'{{"commitMeta":{{"message":"m"}},"operations":[{operations}]}}'.encode()
    headers = {**JSON, "Content-Encoding": "gzip"}
    post(server, "/api/v2/trees?name=large&type=BRANCH", "main", reference(server, "small"))
    path = f"/api/v2/trees/large@{head(server, 'small')}/history/commit"
    answers: list[int] = []

    def sent(packed: bytes = gzip.compress(body, compresslevel=1)) -> None:
        answers.append(server.ask("POST", path, packed, headers).status)

    before = server.resident_bytes()
    with watching(server) as watched, together(sent, 4):
        pass
    assert set(answers) <= {200, 409, 503}
    assert 200 in answers
    assert watched.most_resident_bytes - before < 2 * GROWTH_BYTES


def test_pipelined_requests_do_not_hold_up_others(server: Served) -> None:
    """Each connection is read as fast as it sends, and its requests take seconds to answer."""
    stopped = threading.Event()

    def send_ahead() -> None:
        with server.connect() as rude:
            rude.setblocking(False)
            while not stopped.is_set():
                with suppress(BlockingIOError):
                    rude.send(5000 * REQUEST)
                with suppress(BlockingIOError):
                    while rude.recv(1 << 20):
                        pass

    threads = [threading.Thread(target=send_ahead) for _ in range(8)]
    with watching(server, address="127.0.0.2") as watched:
        for thread in threads:
            thread.start()
        sleep(4)
        stopped.set()
        for thread in threads:
            thread.join()
    check_wait(server, watched.longest_wait_seconds)


def test_a_number_may_still_be_sent_as_a_text(server: Served) -> None:
    body = commit(*(f"lenient-{n}" for n in range(300)))
    for operation in body["operations"]:
        operation["content"]["snapshotId"] = "17"
    post(server, "/api/v2/trees?name=lenient&type=BRANCH", "main", reference(server, "small"))
    answer = post(server, "/api/v2/trees/lenient@{}/history/commit", "lenient", body)
    assert len(answer["addedContents"]) == 300


def test_listings_of_disconnected_clients_do_not_hold_up_others(server: Served) -> None:
    request = b"GET /api/v2/trees/main/entries HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for _ in range(400):
        with socket.create_connection(server.address) as client:
            client.sendall(request)
    started = monotonic()
    # The same client may be refused until the server notices the closed connections.
    while (answer := server.ask("GET", "/api/v2/trees/small/entries")).status == 503:
        assert monotonic() - started < NOTICED_SECONDS
        sleep(0.1)
    assert answer.status == 200
    assert len(json.loads(answer.body)["entries"]) == 1
    assert monotonic() - started < NOTICED_SECONDS


def test_new_connections_do_not_wait_for_listings(server: Served) -> None:
    """Each connection needs the interpreter lock several times, which listings mostly hold."""
    with slow_readers(server, 300):
        waits = []
        end = monotonic() + 3
        while monotonic() < end:
            started = monotonic()
            with socket.create_connection(server.address) as client:
                client.sendall(REQUEST)
                assert client.recv(100).startswith(b"HTTP/1.1 200")
            waits.append(monotonic() - started)
        check_wait(server, max(waits))


def test_a_costly_filter_does_not_hold_up_others(server: Served) -> None:
    """While it runs, other listings and reads of the same client get their turns."""
    costly = quote(r"entry.encodedKey.matches('(\\pL{1}x|\\pN{2}y)')", safe="")
    rude = [server.connect() for _ in range(4)]
    try:
        for connection in rude:
            path = f"/api/v2/trees/main/entries?filter={costly}"
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        with watching(server, "/api/v2/trees/small/entries") as watched:
            sleep(2)
        assert watched.answered > 5
        check_wait(server, watched.longest_wait_seconds)
    finally:
        for connection in rude:
            connection.close()


def test_large_answers_wait_for_their_readers_outside_of_memory(server: Served) -> None:
    # This loads all contents into the cache.
    assert server.ask("GET", LARGE_LISTING).status == 200
    before = server.resident_bytes()
    with slow_readers(server, 40) as readers:
        with watching(server) as watched:
            sleep(2)
        # All answers together are about 350 MB.
        assert watched.most_resident_bytes - before < 150 << 20
        check_wait(server, watched.longest_wait_seconds)
        assert count_entries(readers[0]) == ENTRIES + 1


@pytest.mark.parametrize("method", ["commit", "contents"])
def test_more_operations_or_keys_than_allowed_are_refused_with_the_reason(
    tmp_path: Path, method: str
) -> None:
    with Served(tmp_path, "--max-operations", "1000", quiet=True) as server:
        at = head(server, "main")
        keys = [{"elements": [f"k{n}"]} for n in range(1001)]
        path = f"/api/v2/trees/main@{at}/history/commit"
        body: Any = commit(*(f"k{n}" for n in range(1001)))
        if method == "contents":
            path, body = f"/api/v2/trees/main@{at}/contents", {"requestedKeys": keys}
        answer = server.ask("POST", path, json.dumps(body).encode(), JSON)
        assert answer.status == 413
        assert "1001 operations or keys, but at most 1000" in json.loads(answer.body)["message"]
        body[next(name for name in body if name != "commitMeta")].pop()
        assert server.ask("POST", path, json.dumps(body).encode(), JSON).status == 200


JSON: Final = {"Content-Type": "application/json"}
REQUEST: Final = b"GET /api/v2/trees/main HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def slow_readers(server: Served, count: int) -> Iterator[list[socket.socket]]:
    """Clients that have requested a large listing and do not read it."""
    readers: list[socket.socket] = []
    try:
        for _ in range(count):
            reader = socket.socket()
            readers.append(reader)
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
            reader.connect(server.address)
            reader.sendall(f"GET {LARGE_LISTING} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        yield readers
    finally:
        for reader in readers:
            reader.close()


def check_wait(server: Served, waited_seconds: float) -> None:
    """Compare the wait with the longest one of a single client on the same machine."""
    with watching(server) as alone:
        sleep(1)
    allowed_seconds = max(SHORT_WAIT_SECONDS, TIMES_AS_LONG * alone.longest_wait_seconds)
    assert waited_seconds < allowed_seconds


class Watched:
    """The waits of another client, and the server's memory."""

    def __init__(self) -> None:
        self.longest_wait_seconds = 0.0
        self.most_resident_bytes = 0
        self.answered = 0


@contextmanager
def watching(
    server: Served, path: str = "/api/v2/trees/main", address: str = "127.0.0.1"
) -> Iterator[Watched]:
    watched, stopped = Watched(), threading.Event()

    def watch() -> None:
        connection = http.client.HTTPConnection(
            *server.address, timeout=60, source_address=(address, 0)
        )
        while not stopped.is_set():
            started = monotonic()
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
            waited = monotonic() - started
            watched.answered += 1
            watched.longest_wait_seconds = max(watched.longest_wait_seconds, waited)
            resident = server.resident_bytes()
            watched.most_resident_bytes = max(watched.most_resident_bytes, resident)
            sleep(0.005)
        connection.close()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield watched
    finally:
        stopped.set()
        watcher.join()
    assert watched.answered, "no request was watched"


@contextmanager
def together(work: Any, times: int) -> Iterator[None]:
    threads = [threading.Thread(target=work) for _ in range(times)]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()


def commit(*names: str) -> dict[str, Any]:
    table = {"type": "ICEBERG_TABLE", "snapshotId": 1, "schemaId": 0, "specId": 0, "sortOrderId": 0}
    return {
        "commitMeta": {"message": "m"},
        "operations": [
            {
                "type": "PUT",
                "key": {"elements": [name]},
                "content": {**table, "metadataLocation": f"s3://lake/{name}/1.metadata.json"},
            }
            for name in names
        ],
    }


def reference(server: Served, name: str) -> Any:
    return json.loads(server.ask("GET", f"/api/v2/trees/{name}").body)["reference"]


def head(server: Served, name: str) -> str:
    return str(reference(server, name)["hash"])


def post(server: Served, path: str, branch: str, body: object) -> Any:
    path = path.format(head(server, branch)) if "{}" in path else path
    answer = server.ask("POST", path, json.dumps(body).encode(), JSON)
    assert answer.status == 200, answer
    return json.loads(answer.body)


def count_entries(reader: socket.socket) -> int:
    """The entries of a chunked answer on this connection."""
    answer = http.client.HTTPResponse(reader)
    answer.begin()
    assert answer.getheader("transfer-encoding") == "chunked"
    return len(json.loads(answer.read())["entries"])
