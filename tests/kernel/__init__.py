"""The kernel beside a simple model: random histories have equal outcomes."""

import pytest

pytest.register_assert_rewrite("tests.kernel.catalog_machine")
