"""A client in a process that forks: parent and child do not get each other's answers."""

from __future__ import annotations

import subprocess
import sys
from threading import Event
from typing import Final

import pytest

from tests.client.scripted_server import MAIN, AcceptedConnection, ScriptedServer, answer_main

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")

IDLE: Final = """
import os, sys
from morag.client import Client
client = Client(sys.argv[1])
client.references.get("main")
child = os.fork()
for _ in range(3):
    client.references.get("main")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0)
"""
BUSY: Final = """
import os, sys
from threading import Thread
from morag.client import Client
client = Client(sys.argv[1], connections=1, timeout_seconds=10)
thread = Thread(target=client.references.get, args=["main"])
thread.start()
sys.stdin.readline()  # Now the thread waits for its answer.
child = os.fork()
if not child:
    client.references.get("main")
    os._exit(0)
status = os.waitpid(child, 0)[1]
thread.join()
client.references.get("main")
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_connection_stays_with_the_process_that_made_it() -> None:
    with ScriptedServer(answer_main) as server:
        subprocess.run([sys.executable, "-c", IDLE, server.uri], check=True, timeout=60)
        assert server.connections == 2


def test_a_child_does_not_wait_for_threads_that_it_does_not_have() -> None:
    received, answered = Event(), Event()

    def script(connection: AcceptedConnection, number: int) -> None:
        connection.read_request()
        if number == 1:
            received.set()
            assert answered.wait(60)
        connection.answer(MAIN)
        answered.set()
        answer_main(connection, number)

    with ScriptedServer(script) as server:
        command = [sys.executable, "-c", BUSY, server.uri]
        with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as process:
            assert received.wait(60)
            process.communicate("\n", timeout=60)
        assert process.returncode == 0
        assert server.connections == 2
