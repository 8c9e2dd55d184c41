"""What must hold when things go wrong, at once, or often: no commit is lost, doubled or torn."""

import pytest

pytest.register_assert_rewrite("tests.safety.sound")
