"""Every file of `deploy/` is read by the program that it is for, or by its linter."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deploy import tools
from tests.deploy.proxied import nginx_command, write_changed
from tests.deploy.tools import DEPLOY

# Whoever comes first waits until Helm is built.
pytestmark = [pytest.mark.deploy, pytest.mark.timeout(1800)]

_CHART: Final = DEPLOY / "helm" / "morag"
_STORE: Final = ("--set", "store.secret=lake")
_KUBERNETES: Final = ("1.25.0", "1.37.0")
"""The oldest that the chart takes, and the newest whose rules we have."""
_VALUES: Final = {
    "as it is": (),
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


def test_yaml() -> None:
    done(tools.linters() / "yamllint", "--strict", ".", cwd=DEPLOY)


def test_dockerfile() -> None:
    done(tools.linters() / "hadolint", "Dockerfile", cwd=DEPLOY)


@pytest.mark.parametrize("name", ["postgres", "mariadb", "cassandra", "two-servers"])
def test_compose(name: str) -> None:
    arguments = ("-no-interpolation", "-format", "json", f"{name}.yaml")
    model = json.loads(done(tools.compose(), *arguments, cwd=DEPLOY / "compose"))
    for service in model["services"].values():
        for volume in service.get("volumes", ()):
            assert volume["type"] == "volume" or Path(volume["source"]).exists()
        if "build" in service:
            context = Path(service["build"]["context"])
            assert (context / service["build"]["dockerfile"]).exists()


@pytest.mark.parametrize("values", _VALUES.values(), ids=_VALUES)
def test_the_chart(values: tuple[str, ...]) -> None:
    done(tools.helm(), "lint", "--strict", str(_CHART), *_STORE, *values)
    for version in _KUBERNETES:
        rendered(*values, kubernetes=version)


def test_servers_find_their_store_in_a_secret() -> None:
    [store] = [each for each in environment(rendered()) if each["name"] == "MORAG_STORE"]
    assert store["valueFrom"] == {"secretKeyRef": {"name": "lake", "key": "url"}}


def test_settings_become_variables_as_they_were_written() -> None:
    made = environment(rendered(*_VALUES["everything"]))
    found = {each["name"]: each.get("value") for each in made}
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
def test_the_chart_refuses(values: tuple[str, ...], message: str) -> None:
    chart = ["template", "lake", str(_CHART), "--kube-version", _KUBERNETES[-1]]
    command = [str(tools.helm()), *chart, *values]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode
    assert message in refused.stderr


def test_every_service_leads_to_pods_that_listen() -> None:
    made = rendered(*_VALUES["everything"])
    pods = [
        each["spec"]["template"] for each in made if each["kind"] in ("StatefulSet", "Deployment")
    ]
    services = [each for each in made if each["kind"] == "Service"]
    assert len(services) == 2 + 3
    for service in services:
        wanted = dict(service["spec"]["selector"])
        wanted.pop("statefulset.kubernetes.io/pod-name", None)
        [pod] = [pod for pod in pods if wanted.items() <= pod["metadata"]["labels"].items()]
        named = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= named
    monitor = one("ServiceMonitor", made)["spec"]
    wanted = monitor["selector"]["matchLabels"]
    [asked] = [each for each in services if wanted.items() <= each["metadata"]["labels"].items()]
    assert asked["spec"]["clusterIP"] == "None"
    assert monitor["endpoints"][0]["port"] == asked["spec"]["ports"][0]["name"]


def test_budgets_never_keep_a_node_from_being_drained() -> None:
    assert len([each for each in rendered() if each["kind"] == "PodDisruptionBudget"]) == 2
    alone = rendered(*_VALUES["one server"])
    assert not [each for each in alone if each["kind"] == "PodDisruptionBudget"]


def test_nginx_of_the_chart_knows_every_server(tmp_path: Path) -> None:
    made = rendered(*_VALUES["everything"])
    names = [each["metadata"]["name"] for each in made if each["kind"] == "Service"]
    servers = [name for name in names if name[-1].isdigit()]
    assert len(servers) == 3
    files = one("ConfigMap", made)["data"]
    changes = {
        f"{name}:19120": f"127.0.0.1:{19120 + number}" for number, name in enumerate(servers)
    }
    write_changed(tmp_path, {**changes, " /tmp/": f" {tmp_path}/"}, files)
    done(*nginx_command(tmp_path / "nginx.conf", "-t"))


def rendered(*values: str, kubernetes: str = _KUBERNETES[-1]) -> list[Any]:
    """What the chart asks Kubernetes for, and Kubernetes of this version takes."""
    chart = ("template", "lake", str(_CHART), "--kube-version", kubernetes)
    text = done(tools.helm(), *chart, *_STORE, *values)
    read = done(tools.linters() / "python", "-c", _CHECK, kubernetes, stdin=text)
    made: list[Any] = json.loads(read)
    return made


# Done by the linters' own Python, which reads YAML.
_CHECK: Final = """
import json, sys, kubernetes_validate, yaml
made = list(yaml.safe_load_all(sys.stdin))
for each in made:
    if each["kind"] != "ServiceMonitor":  # That is not of Kubernetes itself.
        kubernetes_validate.validate(each, sys.argv[1], strict=True)
print(json.dumps(made))
"""


def environment(made: list[Any]) -> list[Any]:
    [container] = one("StatefulSet", made)["spec"]["template"]["spec"]["containers"]
    variables: list[Any] = container["env"]
    return variables


def one(kind: str, made: list[Any]) -> Any:
    [found] = [each for each in made if each["kind"] == kind]
    return found


def done(*command: str | Path, stdin: str = "", cwd: Path | None = None) -> str:
    """What a program says that must succeed."""
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
