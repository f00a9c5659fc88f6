"""What is still true of a device after a boot, and which of several claims count."""

import pytest
from nodedevice_agent.devicemanager.resources.same_device_winners import Claim, winners
from nodedevice_agent.identity import Identity


def claim(name: str, *tokens: str, shared: bool = False, parent: str = "", listed: bool = True) -> Claim:
    return Claim(("example.com/x", name), Identity(tokens, shared), ("scope", parent) if parent else None, listed)


@pytest.mark.parametrize("shared", [False, True])
def test_numbers_end_with_the_boot(shared: bool) -> None:
    """And so do the kernel's own paths and places, which have such numbers in them."""
    lasting = ("GPU-1", "/port/1-1/1.0", "/usb/1:2:S/1.0", "/lasting/x", "pair:iommu:7:vfio", "hub /port/1-1", "c188:x")
    passing = ("c188:0", "b8:1", "path:/dev/x", "/devices/usb1/1-1")
    assert Identity((*passing, *lasting), shared).after_boot() == Identity(lasting, shared)


def test_of_two_lists_at_one_time_one_is_not_renewed_yet() -> None:
    """As a board with another firmware is: no two devices have one number, whatever serials are listed with it."""
    one, other = claim("1", "c1:9", "/usb/1:2:S/x"), claim("2", "c1:9", "/usb/1:3:S/x")
    assert winners([], [one, other]) == {other.key: one}
    assert winners([one], [other]) == {other.key: one}


class TestByPort:
    """What is selected by its port is whatever is plugged in there."""

    PORT = ("c188:0", "/devices/usb1/1-1", "/port/1-1", "/port/1-1/1.0", "/usb/1:2:S/1.0", "by port 1-1")

    def test_it_is_each_device_in_the_port(self) -> None:
        other = claim("other", "c188:0", "/port/1-1/1.0", "/usb/1:2:T/1.0")
        assert winners([claim("port", *self.PORT)], [other])
        assert winners([other], [claim("port", *self.PORT)])

    def test_it_is_the_device_that_is_in_there_now(self) -> None:
        """Which a pod may hold by its serial, from another port and another boot."""
        assert winners([claim("held", "/port/1-4/1.0", "/usb/1:2:S/1.0")], [claim("port", *self.PORT)])

    def test_when_it_is_empty_only_the_port_is_left(self) -> None:
        left = Identity(self.PORT, True).when_gone()
        assert left == Identity(("/port/1-1", "/port/1-1/1.0", "by port 1-1"), True)
        elsewhere = claim("elsewhere", "c188:0", "/port/1-2/1.0", "/usb/1:2:S/1.0")
        assert not winners([claim("port", *left.tokens, listed=False)], [elsewhere])

    def test_of_any_other_device_all_is_left(self) -> None:
        identity = Identity(("c188:0", "/port/1-1/1.0", "/usb/1:2:S/1.0"))
        assert identity.when_gone() == identity


def test_each_kind_of_parts_counts() -> None:
    """One part of a device stands for all of them, and for none of another device."""
    shares = [claim(f"{name}-{n}", name, shared=True, parent=name) for name in ("A", "B") for n in range(2)]
    alone = [claim("a", "A"), claim("b", "B"), claim("c", "C")]
    assert winners(shares, alone) == {alone[0].key: shares[0], alone[1].key: shares[2]}
    held_back = zip(shares, [alone[0], alone[0], alone[1], alone[1]], strict=True)
    assert winners([], [*shares, *alone]) == {share.key: winner for share, winner in held_back}


def test_two_that_are_exclusive_are_never_taken_for_parts() -> None:
    first, second = claim("1", "A"), claim("2", "A")
    assert winners([], [first, second]) == {second.key: first}


def test_a_device_does_not_exclude_itself() -> None:
    assert winners([claim("a", "c188:0")], [claim("a", "c188:0")]) == {}
