"""Every file of `deploy/` is accepted by the program that uses it, or by a linter."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deploy import tools
from tests.deploy.nginx_process import nginx_command, write_changed
from tests.deploy.tools import DEPLOY

# The first test waits until Helm is built.
pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1800)]

_CHART: Final = DEPLOY / "helm" / "morag"
_STORE: Final = ("--set", "store.secret=lake")
_KUBERNETES: Final = ("1.25.0", "1.37.0")
"""The oldest version that the chart supports, and the newest whose schemas are available."""
_VALUES: Final = {
    "defaults": (),
    "one server": ("--set", "replicas=1,proxy.enabled=false"),
    "everything": (
        *("--set", "replicas=3,serviceMonitor.enabled=true,serviceAccount.name=lake"),
        *("--set", "imagePullSecrets[0].name=pull,env[0].name=AWS_REGION,env[0].value=eu-west-1"),
        *("--set", "nodeSelector.pool=catalog,podAnnotations.team=lake,podLabels.team=lake"),
        *("--set-json", 'tolerations=[{"key": "catalog", "operator": "Exists"}]'),
        *("--set-json", 'settings={"cache_bytes": 1000000000, "slow_client_seconds": 2.5}'),
        *("--set-json", 'settings.cors_origins=["https://a.example", "https://b.example"]'),
        *("--set", "settings.stack_traces=true,settings.access_log=json"),
    ),
}


def test_yaml_files_pass_yamllint() -> None:
    output_of(tools.linters() / "yamllint", "--strict", ".", cwd=DEPLOY)


def test_the_dockerfile_passes_hadolint() -> None:
    output_of(tools.linters() / "hadolint", "Dockerfile", cwd=DEPLOY)


@pytest.mark.parametrize("name", ["postgres", "mariadb", "cassandra", "two-servers"])
def test_compose_files_can_be_loaded(name: str) -> None:
    arguments = ("-no-interpolation", "-format", "json", f"{name}.yaml")
    model = json.loads(output_of(tools.compose(), *arguments, cwd=DEPLOY / "compose"))
    for service in model["services"].values():
        for volume in service.get("volumes", ()):
            assert volume["type"] == "volume" or Path(volume["source"]).exists()
        if "build" in service:
            context = Path(service["build"]["context"])
            assert (context / service["build"]["dockerfile"]).exists()


@pytest.mark.parametrize("values", _VALUES.values(), ids=_VALUES)
def test_the_chart_renders_valid_objects(values: tuple[str, ...]) -> None:
    output_of(tools.helm(), "lint", "--strict", str(_CHART), *_STORE, *values)
    for version in _KUBERNETES:
        rendered(*values, kubernetes=version)


def test_servers_find_their_store_in_a_secret() -> None:
    [store] = [each for each in environment(rendered()) if each["name"] == "MORAG_STORE"]
    assert store["valueFrom"] == {"secretKeyRef": {"name": "lake", "key": "url"}}


def test_settings_become_environment_variables() -> None:
    objects = environment(rendered(*_VALUES["everything"]))
    found = {each["name"]: each.get("value") for each in objects}
    assert found == {
        "MORAG_STORE": None,
        "MORAG_SHUTDOWN_SECONDS": "30",
        "MORAG_CACHE_BYTES": "1000000000",
        "MORAG_SLOW_CLIENT_SECONDS": "2.5",
        "MORAG_CORS_ORIGINS": "https://a.example,https://b.example",
        "MORAG_STACK_TRACES": "true",
        "MORAG_ACCESS_LOG": "json",
        "AWS_REGION": "eu-west-1",
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((), "store.secret must name a Secret"),
        ((*_STORE, "--set", "replica=3"), "additional properties 'replica' not allowed"),
        ((*_STORE, "--set", "settings.port=1"), "invalid propertyName 'port'"),
        ((*_STORE, "--set", "replicas=0"), "minimum: got 0, want 1"),
    ],
)
def test_the_chart_refuses_wrong_values(values: tuple[str, ...], message: str) -> None:
    chart = ["template", "lake", str(_CHART), "--kube-version", _KUBERNETES[-1]]
    command = [str(tools.helm()), *chart, *values]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode
    assert message in refused.stderr


def test_every_service_leads_to_pods_that_listen() -> None:
    objects = rendered(*_VALUES["everything"])
    pods = [
        each["spec"]["template"]
        for each in objects
        if each["kind"] in ("StatefulSet", "Deployment")
    ]
    services = [each for each in objects if each["kind"] == "Service"]
    assert len(services) == 2 + 3
    for service in services:
        wanted = dict(service["spec"]["selector"])
        wanted.pop("statefulset.kubernetes.io/pod-name", None)
        [pod] = [pod for pod in pods if wanted.items() <= pod["metadata"]["labels"].items()]
        named = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= named
    monitor = one("ServiceMonitor", objects)["spec"]
    wanted = monitor["selector"]["matchLabels"]
    [scraped] = [each for each in services if wanted.items() <= each["metadata"]["labels"].items()]
    assert scraped["spec"]["clusterIP"] == "None"
    assert monitor["endpoints"][0]["port"] == scraped["spec"]["ports"][0]["name"]


def test_a_single_server_has_no_disruption_budget() -> None:
    assert len([each for each in rendered() if each["kind"] == "PodDisruptionBudget"]) == 2
    alone = rendered(*_VALUES["one server"])
    assert not [each for each in alone if each["kind"] == "PodDisruptionBudget"]


def test_nginx_of_the_chart_has_every_server(tmp_path: Path) -> None:
    objects = rendered(*_VALUES["everything"])
    names = [each["metadata"]["name"] for each in objects if each["kind"] == "Service"]
    servers = [name for name in names if name[-1].isdigit()]
    assert len(servers) == 3
    files = one("ConfigMap", objects)["data"]
    changes = {
        f"{name}:19120": f"127.0.0.1:{19120 + number}" for number, name in enumerate(servers)
    }
    write_changed(tmp_path, {**changes, " /tmp/": f" {tmp_path}/"}, files)
    output_of(*nginx_command(tmp_path / "nginx.conf", "-t"))


def rendered(*values: str, kubernetes: str = _KUBERNETES[-1]) -> list[Any]:
    """The objects of the chart, validated for a version of Kubernetes."""
    chart = ("template", "lake", str(_CHART), "--kube-version", kubernetes)
    text = output_of(tools.helm(), *chart, *_STORE, *values)
    read = output_of(tools.linters() / "python", "-c", _CHECK, kubernetes, stdin=text)
    objects: list[Any] = json.loads(read)
    return objects


# This runs in the Python of the linters, which has a YAML parser.
_CHECK: Final = """
import json, sys, kubernetes_validate, yaml
objects = list(yaml.safe_load_all(sys.stdin))
for each in objects:
    if each["kind"] != "ServiceMonitor":  # It is not a type of Kubernetes itself.
        kubernetes_validate.validate(each, sys.argv[1], strict=True)
print(json.dumps(objects))
"""


def environment(objects: list[Any]) -> list[Any]:
    [container] = one("StatefulSet", objects)["spec"]["template"]["spec"]["containers"]
    variables: list[Any] = container["env"]
    return variables


def one(kind: str, objects: list[Any]) -> Any:
    [found] = [each for each in objects if each["kind"] == kind]
    return found


def output_of(*command: str | Path, stdin: str = "", cwd: Path | None = None) -> str:
    """The output of a program that must succeed."""
    result = subprocess.run(
        [str(part) for part in command],
        input=stdin,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, f"{command[0]}:\n{result.stdout}{result.stderr}"
    return result.stdout
