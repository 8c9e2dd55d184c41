"""Responses to requests that schemathesis generates are as the OpenAPI document describes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from morag.api.app import ENDPOINTS
from tests.api.openapi_examples import document_with_examples
from tests.api.schemathesis_checks import response_is_as_described
from tests.server_process import Served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemathesis import Case
    from schemathesis.schemas import BaseSchema

    from morag.api.endpoints import Endpoint

_ROOT: Final = Path(__file__).parents[2]
_FEW: Final = settings(
    max_examples=4,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BaseSchema]:
    with Served(tmp_path_factory.mktemp("morag")) as server:
        schema = schemathesis.openapi.from_dict(document_with_examples(server.url))
        schema.config.update(base_url=server.url)
        yield schema


# Not by schemathesis' own decorator, which generates examples already at collection.
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: f"{one.method} {one.path}")
def test_answers_are_as_described(
    schema: BaseSchema, endpoint: Endpoint, mode: GenerationMode
) -> None:
    operation = schema[endpoint.path][endpoint.method]

    @_FEW
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Case[Any]) -> None:
        case.call_and_validate(checks=[response_is_as_described])

    check()


@pytest.mark.long
def test_answers_are_as_described_in_all_phases(tmp_path: Path) -> None:
    """Examples, boundaries, random values, and sequences that use earlier responses."""
    with Served(tmp_path) as server:
        document = tmp_path / "openapi.json"
        document.write_text(json.dumps(document_with_examples(server.url)))
        command = ["run", str(document), "--url", server.url, "--no-color"]
        command += ["--checks", response_is_as_described.__name__, "--mode", "all"]
        command += ["--max-examples", "100", "--seed", "1", "--continue-on-failure"]
        run = subprocess.run(
            [Path(sys.executable).with_name("schemathesis"), *command],
            cwd=tmp_path,  # It writes its findings into this directory.
            env={
                **os.environ,
                "PYTHONPATH": str(_ROOT),
                "SCHEMATHESIS_HOOKS": response_is_as_described.__module__,
            },
            capture_output=True,
            text=True,
            check=False,
        )
    assert run.returncode == 0, run.stdout + run.stderr
