"""The files of `deploy/` match Morag: settings, stores, versions, limits and endpoints."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from packaging.requirements import Requirement

from morag.api.app import ENDPOINTS
from morag.backend.engines import GROUP
from morag.backend.urls import StoreUrl
from morag.config import ServerSettings, Settings
from morag.config_sources import FIELDS
from morag.server.readiness import LIVE, READY
from tests.deploy.tools import DEPLOY

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOT: Final = DEPLOY.parent
_PROJECT: Final[Mapping[str, Any]] = tomllib.loads((_ROOT / "pyproject.toml").read_text())[
    "project"
]
_EXTRAS: Final = {entry.load().extra for entry in entry_points(group=GROUP)} - {""}
_TEXTS: Final = {
    str(path.relative_to(DEPLOY)): path.read_text()
    for path in sorted(DEPLOY.rglob("*"))
    if path.is_file() and path.name != "requirements.txt"
}
_COMPOSE: Final = {name: text for name, text in _TEXTS.items() if name.startswith("compose/")}
_READS_BY_POST: Final = {"/api/v2/trees/{ref}/contents", "/api/v1/contents"}
_WITHOUT_REFERENCE: Final = {"/api/v2/config/repository"}


@pytest.mark.parametrize("name", _TEXTS)
def test_every_variable_is_a_setting(name: str) -> None:
    known = {field.variable for field in FIELDS.values()} | {"MORAG_DB_PASSWORD"}
    assert set(re.findall(r"\bMORAG_[A-Z_]*[A-Z]\b", _TEXTS[name])) <= known


@pytest.mark.parametrize("name", _COMPOSE)
def test_a_store_exists_and_can_be_shared_by_servers(name: str) -> None:
    [url] = re.findall(r"MORAG_STORE: (\S+)", _COMPOSE[name])
    assert not StoreUrl.parse(url).traits.private


@pytest.mark.parametrize("name", _COMPOSE)
def test_ports_are_published_on_loopback_only_and_passwords_are_required(name: str) -> None:
    ports = re.findall(r"ports:\n((?: +- .*\n)+)", _COMPOSE[name])
    assert len(ports) == 1
    assert all('- "127.0.0.1:' in line for line in ports[0].splitlines())
    for secret in re.findall(r"PASSWORD: (\S.*)", _COMPOSE[name]):
        assert secret.startswith(("${MORAG_DB_PASSWORD:?", '"1"'))


def test_a_server_gets_enough_time_to_stop() -> None:
    seconds = ServerSettings().shutdown_seconds
    for name, text in _COMPOSE.items():
        given = [int(found) for found in re.findall(r"stop_grace_period: (\d+)s", text)]
        assert given, name
        assert min(given) > seconds, name
    assert f"\nshutdownSeconds: {seconds:.0f}\n" in _TEXTS["helm/morag/values.yaml"]


def test_nginx_has_the_limits_of_the_server() -> None:
    server, text = ServerSettings(), _TEXTS["nginx/nginx.conf"]
    [body] = re.findall(r"client_max_body_size +(\d+)m;", text)
    [buffers] = re.findall(r"large_client_header_buffers 4 (\d+)k;", text)
    assert int(body) * 1024 * 1024 == server.max_request_bytes
    assert int(buffers) * 1024 == server.max_head_bytes
    assert f'"-"     "{Settings().default_branch}";' in _TEXTS["nginx/branches.conf"]


def test_all_files_use_the_same_port() -> None:
    port = str(ServerSettings().port)
    numbers = re.findall(
        r"(?:listen |EXPOSE |containerPort: |127\.0\.0\.1:|morag-\d:|port: )(\d{4,})",
        "\n".join(_TEXTS.values()),
    )
    assert len(numbers) > 10
    assert set(numbers) == {port}


def test_health_checks_use_the_paths_of_the_server() -> None:
    used = set(re.findall(r"/health/\w+", "\n".join(_TEXTS.values())))
    assert used == {LIVE, READY}


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = _TEXTS["helm/morag/Chart.yaml"]
    version = _PROJECT["version"]
    assert f"\nversion: {version}\n" in chart
    assert f"\nappVersion: {version}\n" in chart


def test_the_chart_has_the_configuration_of_nginx() -> None:
    # It is a link, because two copies might differ.
    assert (DEPLOY / "helm/morag/nginx").resolve() == DEPLOY / "nginx"


def test_the_page_names_files_that_exist() -> None:
    page = (_ROOT / "docs" / "deploy.md").read_text()
    named = set(re.findall(r"\b(?:deploy|docs)/[\w./-]*\w", page))
    assert len(named) > 8
    assert [path for path in sorted(named) if not (_ROOT / path).exists()] == []
    assert {path.name for path in (DEPLOY / "compose").iterdir()} == {
        Path(path).name for path in named if path.startswith("deploy/compose/")
    }


def test_the_image_has_all_drivers_in_required_versions() -> None:
    text = (DEPLOY / "requirements.txt").read_text()
    pinned = [Requirement(line.rstrip("\\ ")) for line in re.findall(r"^\w.*", text, re.MULTILINE)]
    versions = {pin.name.lower(): next(iter(pin.specifier)).version for pin in pinned}
    optional = _PROJECT["optional-dependencies"]
    drivers = (each for extra in _EXTRAS for each in optional[extra])
    for line in (*_PROJECT["dependencies"], *drivers):
        wanted = Requirement(line)
        assert wanted.specifier.contains(versions[wanted.name.lower()]), line


def test_one_extra_installs_the_drivers_of_all_engines() -> None:
    [line] = _PROJECT["optional-dependencies"]["all-stores"]
    assert Requirement(line).extras == _EXTRAS


def test_the_build_context_has_exactly_the_copied_files() -> None:
    given = {line[1:] for line in _TEXTS["Dockerfile.dockerignore"].split() if line[0] == "!"}
    copies = re.findall(r"^COPY (?!--)(.*) \S+$", _TEXTS["Dockerfile"], re.MULTILINE)
    copied = {source for line in copies for source in line.split()}
    assert copied == given
    assert all((_ROOT / source).exists() for source in copied)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda each: f"{each.method} {each.path}")
def test_every_write_selects_a_server_by_its_branch_and_no_read_does(endpoint: Any) -> None:
    names = {"kind": "branch", "key": "sales", **dict.fromkeys(("ref", "branch"), "feature/x@00")}
    path = re.sub(r"{(\w+)}", lambda found: names.get(found[1], "feature"), endpoint.path)
    written = branch_written(endpoint.method, path)
    if endpoint.method == "GET" or endpoint.path in _READS_BY_POST | _WITHOUT_REFERENCE:
        assert written == ""
    elif endpoint.path in ("/api/v2/trees", "/api/v1/trees/tree") or (
        endpoint.method == "DELETE" and "namespace" not in endpoint.path
    ):
        assert written == ":references"
    else:
        assert written == ("feature/x" if "/v2/" in endpoint.path else "feature")


def branch_written(method: str, uri: str) -> str:
    """The result of the first map of nginx. Python understands its patterns."""
    text = _TEXTS["nginx/branches.conf"]
    [rules] = re.findall(r"\$morag_written {\n(.*?)\n}", text, re.DOTALL)
    for pattern, value in re.findall(r'^ +"~(.*)" (\S+);$', rules, re.MULTILINE):
        found = re.search(pattern.replace("(?<", "(?P<"), f"{method} {uri}")
        if found is not None:
            return found[value[1:]] if value[0] == "$" else str(value).strip('"')
    return ""
