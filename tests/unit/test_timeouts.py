"""Every test ends by itself."""

import pytest


def test_each_test_has_a_timeout(request: pytest.FixtureRequest) -> None:
    assert [item.nodeid for item in request.session.items if item.get_closest_marker("timeout") is None] == []
