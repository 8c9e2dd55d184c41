"""Faults, kills, damaged files and races: no commit is lost, stored twice or stored in part."""

import pytest

pytest.register_assert_rewrite("tests.safety.history_checks")
