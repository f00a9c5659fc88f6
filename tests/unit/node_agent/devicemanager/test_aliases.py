"""A listed device goes by the ID by which it is known."""

from nodedevice_agent.devicemanager.resources.aliases import as_known
from nodedevice_agent.devicemanager.resources.devices import Device, ListedDevices, accept
from nodedevice_api.parts import PartRules


def names(found: ListedDevices) -> dict[str, tuple[str, ...]]:
    return {device_id: device.aliases for device_id, device in found.devices.items()}


A = Device("a", False, (1,), aliases=("b", "c", "d"), identity=("c1:9",), is_shared=True)


def test_the_first_known_alias_counts_and_the_others_stay_aliases() -> None:
    assert names(as_known(accept([A]), {"c", "d"})) == {"c": ("a", "b", "d")}
    assert names(as_known(accept([A]), {"d", "b"})) == {"b": ("a", "c", "d")}
    assert names(as_known(accept([A]), {"d"})) == {"d": ("a", "b", "c")}


def test_an_alias_that_reads_like_a_part_makes_none() -> None:
    (found,) = as_known(accept([Device("a", aliases=("b-1",))]), {"b-1"}).devices.values()
    assert (found.id, found.parent) == ("b-1", "")


def test_its_own_id_comes_before_any_alias() -> None:
    before = accept([A, Device("x")])
    assert as_known(before, {"a", "b"}) is before
    assert as_known(before, {"x"}) is before
    assert as_known(before, set()) is before


def test_a_list_keeps_its_order_and_the_rest_of_it() -> None:
    found = as_known(accept([Device("z"), A, Device("m")]), {"c"})
    assert [*found.devices] == ["z", "c", "m"]
    assert found.ids == ("c", "m", "z")


def test_an_id_has_one_device() -> None:
    other = Device("e", aliases=("b", "f"))
    # another device is listed so
    assert names(as_known(accept([A, Device("b")]), {"b", "c"})) == {"c": ("a", "b", "d"), "b": ()}
    # two have it as an alias
    assert names(as_known(accept([A, other]), {"b"})) == {"b": ("a", "c", "d"), "e": ("b", "f")}
    assert names(as_known(accept([A, other]), {"b", "f"})) == {"b": ("a", "c", "d"), "f": ("e", "b")}


class TestParts:
    """All parts of a device go by the ID of one device, which is the parent of each."""

    PARTS = tuple(Device(f"new-{n}", parent="new", aliases=(f"old-{n}", f"older-{n}")) for n in range(3))
    PARENT = Device("new", attributes=(("model", "x"),), part_size="1Gi")

    def listed(self, *more: Device) -> ListedDevices:
        return accept((*self.PARTS, *more), part_rules=PartRules(), parents={"new": self.PARENT})

    def test_one_that_is_known_names_all(self) -> None:
        found = as_known(self.listed(), {"older-1"})
        assert names(found) == {f"older-{n}": (f"new-{n}", f"old-{n}") for n in range(3)}
        assert found.by_parent == {"older": ["older-0", "older-1", "older-2"]}
        (parent,) = found.parents.values()
        assert (*found.parents, parent.id, parent.part_size) == ("older", "older", "1Gi")
        assert found.part_rules == PartRules()

    def test_one_that_is_held_by_its_own_id_keeps_all_that_are_not_held(self) -> None:
        before = self.listed()
        assert as_known(before, {"new-2"}) is before
        found = as_known(before, {"old-0", "new-2"})
        assert [*found.devices] == ["old-0", "new-1", "new-2"]
        assert found.by_parent == {"old": ["old-0"], "new": ["new-1", "new-2"]}
        assert {*found.parents} == {"old", "new"}
        assert [*as_known(before, {"older-0", "old-1"}).devices] == ["older-0", "old-1", "old-2"]

    def test_cordons_name_them_where_pods_do_not(self) -> None:
        before = self.listed()
        assert [*as_known(before, {"old-0"}, {"new-2", "older-1"}).devices] == ["old-0", "old-1", "old-2"]
        assert as_known(before, {"new-0"}, {"old-1"}) is before
        assert as_known(before, set(), {"new-2", "old-0"}) is before
        assert [*as_known(before, set(), {"older-1"}).devices] == ["older-0", "older-1", "older-2"]

    def test_another_device_beside_it_stays(self) -> None:
        found = as_known(self.listed(Device("other-0", parent="other", aliases=("else-0",))), {"old-2"})
        assert set(found.by_parent) == {"old", "other"}
        assert [*found.parents] == ["old"]

    def test_as_many_aliases_as_all_have(self) -> None:
        """A list of ours has as many for each part."""
        fewer = Device("new-3", parent="new", aliases=("old-3",))
        before = self.listed(fewer)
        assert as_known(before, set(), {"older-0"}) is before
        # a held one is never given out by another ID
        assert [*as_known(before, {"older-0"}).devices] == ["older-0", "new-1", "new-2", "new-3"]
        assert "old-3" in as_known(self.listed(fewer), {"old-0"}).devices
