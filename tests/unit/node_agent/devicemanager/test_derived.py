"""Records compare and show only the fields that count."""

from msgspec.structs import replace
from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.records.allocations import Allocation

HELD = Allocation("uid", "main", "example.com/gpu", {-1: ("b", "a")}, b"", ContainerEdits(envs={"KEY": "SECRET"}))


def test_uncompared_fields_do_not_count() -> None:
    same, other = replace(HELD, edits=None), replace(HELD, since=1)
    assert (same == HELD, same != HELD) == (True, False)
    assert (other == HELD, other != HELD) == (False, True)
    assert HELD != "uid"


def test_uncompared_fields_are_not_shown() -> None:
    assert "SECRET" not in f"{HELD} {HELD!r}"
