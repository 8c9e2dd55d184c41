"""Morag beside a Nessie server: equal answers, and one store for both."""

import pytest

pytest.register_assert_rewrite("tests.nessie.catalogs")
