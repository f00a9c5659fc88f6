"""What is still true of a device after a boot, and which of several claims count."""

import pytest
from nodedevice_agent.devicemanager.resources.same_device_winners import Claim, winners
from nodedevice_agent.identity import Identity


def claim(name: str, token: str, *, shared: bool = False, parent: str = "") -> Claim:
    return Claim(("example.com/x", name), Identity((token,), shared), ("scope", parent) if parent else None)


@pytest.mark.parametrize("shared", [False, True])
def test_numbers_end_with_the_boot(shared: bool) -> None:
    """And so do the kernel's own paths and places, which have such numbers in them."""
    lasting = ("GPU-1", "/port/1-1/1.0", "/usb/1:2:S/1.0", "/lasting/x", "pair:iommu:7:vfio", "hub /port/1-1", "c188:x")
    passing = ("c188:0", "b8:1", "path:/dev/x", "/devices/usb1/1-1")
    assert Identity((*passing, *lasting), shared).after_boot() == Identity(lasting, shared)


def test_each_kind_of_parts_counts() -> None:
    """One part of a device stands for all of them, and for none of another device."""
    shares = [claim(f"{name}-{n}", name, shared=True, parent=name) for name in ("A", "B") for n in range(2)]
    alone = [claim("a", "A"), claim("b", "B"), claim("c", "C")]
    assert winners(shares, alone) == {alone[0].key: shares[0], alone[1].key: shares[2]}
    held_back = zip(shares, [alone[0], alone[0], alone[1], alone[1]], strict=True)
    assert winners([], [*shares, *alone]) == {share.key: winner for share, winner in held_back}
