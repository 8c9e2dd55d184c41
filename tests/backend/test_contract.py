"""The contracts, as the tests of another repository import them."""

from __future__ import annotations

import subprocess
import sys

import morag.testing
from morag.testing import backend_contract


def test_the_package_offers_every_contract() -> None:
    contracts = {name for name in vars(backend_contract) if name.endswith("Contract")}
    assert set(morag.testing.__all__) == contracts


def test_the_contracts_need_no_hypothesis() -> None:
    code = "import sys, morag.testing; sys.exit('hypothesis' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
