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
    assert repr(HELD) == (
        "Allocation(pod_uid='uid', container='main', resource_name='example.com/gpu', ids_by_numa={-1: ('b', 'a')}, "
        "response=b'', since=0, files=(), delivery='')"
    )


def test_a_copy_with_other_values_derives_its_fields() -> None:
    assert HELD.device_ids == ("a", "b")
    assert replace(HELD, ids_by_numa={0: ("c",)}).device_ids == ("c",)
