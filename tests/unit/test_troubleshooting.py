"""The page on troubleshooting has every reason that the programs report, so that a search for one ends there."""

from pathlib import Path

import pytest
from nodedevice_api.names import Reason
from nodedevice_operator.observability.events import EventReason

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
REASONS = sorted(
    {value for kind in (Reason, EventReason) for name, value in vars(kind).items() if not name.startswith("_")}
)


@pytest.mark.parametrize("reason", REASONS)
def test_has_every_reason(reason: str) -> None:
    assert f"`{reason}`" in PAGE.read_text(encoding="utf-8")
