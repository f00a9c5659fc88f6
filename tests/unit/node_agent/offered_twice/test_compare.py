"""Which devices are one, and which are not although something of them is equal."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.offered_twice.compare import Kept, Offer, find
from nodedevice_agent.offered_twice.files import Node
from nodedevice_agent.offered_twice.sources import Raw, Source

from tests.unit.node_agent.offered_twice.offered import NUMBER, PATH, PCI, UUID, findings, offer, pairs, uuid

BUS = "resource.kubernetes.io/pciBusID"
MIG = "MIG-11111111-2222-3333-4444-55555555555{}"
NVIDIA0, CONTROL = Node("/dev/nvidia0", "c195:0"), Node("/dev/nvidiactl", "c195:255")
ADAPTER = Node("/dev/infiniband/uverbs0", "c231:192", "/dev/infiniband/uverbs0", True)
FUSE, TTY = Node("/dev/fuse", "c10:229", "/dev/fuse"), Node(PATH, NUMBER, PATH, True)
PF, SERIAL, ZEROS = "0000:3b:00.0", {"x/serial": "A50285BI", "x/vendor": "0403"}, "00000000-0000-0000-0000-000000000000"


def of_kubelet(*raws: Raw, **more: Any) -> Offer:
    return offer(Source.KUBELET, raws, **more)


def of_driver(*raws: Raw, **more: Any) -> Offer:
    return offer(Source.DRA, raws, **more)


def of_two_drivers(one: Raw, other: Raw) -> Sequence[Offer]:
    return of_driver(one, name="one.example.com/devices"), of_driver(other, name="two.example.com/devices")


def built_in(*raws: Raw) -> Offer:
    return offer(Source.BUILT_IN, raws)


def instance(number: int, **attributes: str) -> Raw:
    """Of one GPU."""
    return Raw(MIG.format(number), attributes, (UUID, "c195:0", MIG.format(number)), is_shared=True)


NOT_ONE: dict[str, Sequence[Offer]] = {
    "VF and PF": (of_kubelet(Raw(PF)), of_driver(Raw("vf-0", {BUS: "0000:3b:02.0", "x/pfPciAddress": PF}))),
    "a VF that names its PF alone": (of_kubelet(Raw(PF)), of_driver(Raw("vf-0", {"x/parentPciAddress": PF}))),
    "VFs that have the PF's address": (of_kubelet(Raw(PF)), of_driver(Raw("vf-0", {BUS: PF}), Raw("vf-1", {BUS: PF}))),
    "two MIG instances of one GPU": (
        of_kubelet(Raw(MIG.format(0))),
        of_driver(Raw("mig-1", {"g/uuid": MIG.format(1), BUS: PCI})),
        built_in(instance(2, pciBusID=PCI)),
    ),
    "an instance and its GPU": (
        of_kubelet(Raw(UUID)),
        of_driver(Raw("mig-1", {"g/uuid": MIG.format(1), "g/parentUUID": UUID})),
        built_in(instance(2, pciBusID=PCI)),
    ),
    "two ports of an adapter": (
        of_kubelet(Raw(PF)),
        of_driver(Raw("port-1", {BUS: "0000:3b:00.1", "n/serial": "S1", "n/vendor": "15b3"})),
    ),
    "two ports with one serial number": of_two_drivers(
        Raw("a", {BUS: PF, "serial": "S1", "vendor": "15b3"}),
        Raw("b", {BUS: "0000:3b:00.1", "serial": "S1", "vendor": "15b3"}),
    ),
    "shares of one device, of one source": (of_kubelet(Raw(f"{UUID}::0"), Raw(f"{UUID}::1")),),
    "shares by other names": (
        of_kubelet(Raw(UUID)),
        of_driver(Raw("share-0", {"g/uuid": UUID}), Raw("share-1", {"g/uuid": UUID})),
    ),
    "one serial twice": (
        built_in(Raw("usb", tokens=("/usb/0403:6001:A50285BI/1.0/ttyUSB#0",))),
        of_driver(Raw("tty-0", SERIAL), Raw("tty-1", SERIAL)),
    ),
    "a serial that is not its own": (
        built_in(Raw("usb", tokens=("/usb/0403:6001:A50285BI@1-2/1.0/ttyUSB#0",))),
        of_driver(Raw("tty-0", SERIAL)),
    ),
    "one serial of two makers": of_two_drivers(Raw("a", SERIAL), Raw("b", SERIAL | {"x/vendor": "15b3"})),
    "a serial that says nothing": of_two_drivers(*[Raw("a", {"x/serial": "0000", "x/vendor": "0403"})] * 2),
    "the driver's control file": (
        of_kubelet(files=[(("a",), [CONTROL])], is_only=True),
        of_driver(files=[(("b",), [CONTROL])], is_only=True),
    ),
    "the kernel's file": (of_kubelet(files=[(("a",), [FUSE])]), of_driver(files=[(("b",), [FUSE])])),
    "a file that two devices of a source have": (
        of_kubelet(files=[(("a",), [TTY]), (("b",), [TTY])]),
        of_driver(files=[(("c",), [TTY])]),
    ),
    "a GPU's file with its instance": (of_kubelet(Raw(UUID), files=[((UUID,), [NVIDIA0])]), built_in(instance(2))),
    "an adapter, and a GPU with its files": (
        of_kubelet(Raw(UUID), files=[((UUID,), [NVIDIA0, ADAPTER])]),
        of_driver(Raw("nic", {BUS: PCI}), files=[(("nic",), [ADAPTER])]),
    ),
    "an adapter of which nothing but its path is known, and a GPU with its files": (
        of_kubelet(Raw(UUID), files=[((UUID,), [NVIDIA0, Node("/dev/infiniband/uverbs0")])]),
        of_driver(Raw("nic", {BUS: PCI}), files=[(("nic",), [ADAPTER])]),
    ),
    "two GPUs, and a file of both": (
        of_kubelet(Raw(UUID), files=[((UUID,), [NVIDIA0])]),
        of_driver(Raw("g", {"g/uuid": UUID.replace("0", "1")}), files=[(("g",), [NVIDIA0])]),
    ),
    "two resources of one vendor's plugin": (
        of_kubelet(Raw(UUID), name="example.com/gpu"),
        of_kubelet(Raw(UUID), name="example.com/gpu.shared"),
    ),
    "a UUID of nothing but zeros": (of_kubelet(Raw(ZEROS)), of_driver(Raw("a", {"x/uuid": ZEROS}))),
    "names that count": (
        of_kubelet(Raw("gpu-0"), Raw("GPU-1")),
        of_driver(Raw("gpu-0", {"x/uuid": "gpu-0"}), Raw("gpu-1", {"x/index": 1})),
    ),
    "a device that no pod can get there": (of_kubelet(Raw(UUID)), of_driver(Raw("a", {"x/uuid": UUID}), out=["a"])),
}
ONE: dict[str, Sequence[Offer]] = {
    "resources of two vendors' plugins": (
        of_kubelet(Raw(UUID), name="one.example.com/gpu"),
        of_kubelet(Raw(UUID), name="two.example.com/gpu"),
    ),
    "two drivers": of_two_drivers(Raw("a", {"x/uuid": UUID}), Raw("b", {"x/uuid": UUID})),
    "an instance by its own UUID": (of_kubelet(Raw(MIG.format(1))), built_in(instance(1))),
    "of several attributes the plain one": (
        of_kubelet(Raw(PCI)),
        of_driver(Raw("a", {"x/pciAddress": PCI, "x/upstreamPciAddress": "0000:00:01.0"})),
    ),
    "an adapter by its files": (
        of_kubelet(files=[(("a",), [ADAPTER, Node("/dev/infiniband/rdma_cm")])]),
        of_driver(Raw("nic", {BUS: PCI}), files=[(("nic",), [ADAPTER])]),
    ),
    "one of two that a container holds": (
        of_kubelet(files=[(("a", "b"), [TTY, CONTROL])]),
        of_driver(files=[(("c",), [TTY])]),
    ),
    "a file of the only device on both sides": (
        of_kubelet(files=[(("a",), [FUSE])], is_only=True),
        of_driver(files=[(("b",), [FUSE])], is_only=True),
    ),
}


@pytest.mark.parametrize("offers", NOT_ONE.values(), ids=NOT_ONE.keys())
def test_these_are_not_one_device(offers: Sequence[Offer]) -> None:
    assert not findings(*offers)


@pytest.mark.parametrize("offers", ONE.values(), ids=ONE.keys())
def test_these_are_one_device(offers: Sequence[Offer]) -> None:
    assert len(pairs(*offers)) == 1


def test_both_sides_have_it_and_count_alike() -> None:
    kubelets = of_kubelet(Raw(UUID), Raw(PCI), held=[UUID])
    driver = of_driver(Raw("a", {"x/uuid": UUID}), Raw("b", {BUS: PCI}), held=["a", "b"])
    found = findings(kubelets, driver)
    [here], [there] = found[kubelets.resource_name], found[driver.resource_name]
    assert (here.held_here, here.held_there, here.held_twice) == (1, 2, 1)
    assert (there.held_here, there.held_there, there.held_twice) == (2, 1, 1)
    assert {(b, a) for a, b in here.devices} == {*there.devices} == {(("a",), (UUID,)), (("b",), (PCI,))}


def test_a_file_in_two_containers_is_that_of_the_device_that_both_have() -> None:
    kubelets = of_kubelet(files=[(("a", "b"), [TTY]), (("b", "c"), [TTY])])
    assert pairs(kubelets, of_driver(files=[(("x",), [TTY])])) == {
        frozenset({(kubelets.resource_name, ("b",)), ("driver.example.com/devices", ("x",))})
    }


def test_a_file_that_was_shared_is_nobodys_while_one_pod_is_left() -> None:
    """Else the condition would come and go with the second pod on a device."""
    driver = of_driver(files=[(("c",), [TTY])])
    one, both = (of_kubelet(files=[((each,), [TTY]) for each in ids]) for ids in ("a", "ab"))
    kept = Kept()
    assert findings(one, driver, kept=kept)
    assert not findings(both, driver, kept=kept)
    assert not findings(one, driver, kept=kept)
    assert not findings(of_kubelet(Raw(UUID), name="other.example.com/gpu"), driver, kept=kept)
    assert findings(one, driver, kept=kept), "its source was away"


def test_what_is_no_file_is_shared_only_as_long_as_it_is() -> None:
    driver, kept = of_driver(Raw("g", {"x/uuid": UUID})), Kept()
    twice = of_kubelet(*(Raw(f"0000:1b:00.{n}", nodes=(TTY,)) for n in (0, 1)))
    assert not findings(twice, driver, kept=kept)
    two = [Raw(name, {"x/uuid": UUID}) for name in ("g", "h")]
    plugin = of_kubelet(Raw(UUID))
    assert not findings(plugin, of_driver(*two), kept=kept)
    assert findings(plugin, driver, kept=kept)


def _address(number: int) -> str:
    return f"0000:{number // 32:02x}:{number % 32:02x}.0"


NUMBERS = st.lists(st.integers(1, 400), unique=True, max_size=40)


@given(NUMBERS, NUMBERS, st.data())
def test_every_planted_pair_is_found_and_no_other(theirs: list[int], drivers: list[int], data: st.DataObject) -> None:
    """Devices with identities of their own, of which some are in both sources, by any kind that both have."""
    by_pci = {n for n in drivers if data.draw(st.booleans())}
    kubelets = [Raw(_address(n) if n in by_pci else uuid(n)) for n in theirs]
    both = [
        Raw(f"gpu-{n}", {"x/uuid": uuid(n), BUS: _address(n), "x/serial": f"s{n}", "x/vendor": "v"}) for n in drivers
    ]
    found = pairs(of_kubelet(*kubelets), of_driver(*both))
    assert len(found) == len({*theirs} & {*drivers})
    assert all(len(pair) == 2 for pair in found)


def test_steps_and_work_grow_with_the_devices_alone() -> None:
    """Also where as many sources as a node has names offer the same devices."""

    def steps(sources: int, devices: int) -> int:
        offers = [
            offer(Source.KUBELET, [Raw(uuid(n)) for n in range(1, devices + 1)], name=f"v{s}.example.com/gpu")
            for s in range(sources)
        ]
        return sum(1 for _ in find(offers, Kept()))

    assert steps(2, 1000) <= 2.2 * steps(2, 500)
    assert steps(64, 50) <= 2.2 * steps(32, 50)
    offers = [of_kubelet(Raw(UUID), name=f"v{n}.example.com/gpu") for n in range(256)]
    found = findings(*offers)
    assert len(found) == 256, "each one knows of another"
    assert sum(map(len, found.values())) <= 4 * 256


def test_where_nothing_says_which_of_several_it_is_all_are_named() -> None:
    kubelets = of_kubelet(files=[(("a", "b"), [TTY])])
    driver = of_driver(files=[(("x", "y"), [TTY])])
    assert pairs(kubelets, driver) == {
        frozenset({(kubelets.resource_name, ("a", "b")), (driver.resource_name, ("x", "y"))})
    }


@pytest.mark.parametrize("there", [("x",), ("x", "y")])
def test_where_an_id_says_which_one_it_is_a_file_of_several_says_nothing_more(there: tuple[str, ...]) -> None:
    kubelets = of_kubelet(Raw(UUID), files=[((UUID, "other"), [TTY])])
    driver = of_driver(Raw("x", {"x/uuid": UUID}), files=[(there, [TTY])])
    assert pairs(kubelets, driver) == {frozenset({(kubelets.resource_name, (UUID,)), (driver.resource_name, ("x",))})}


def test_a_source_whose_device_no_pod_can_get_hides_no_other() -> None:
    kubelets, ours = of_kubelet(Raw(UUID)), built_in(Raw("x", tokens=(UUID,)))
    assert pairs(kubelets, of_driver(Raw("a", {"x/uuid": UUID}), out=["a"]), ours) == {
        frozenset({(kubelets.resource_name, (UUID,)), (ours.resource_name, ("x",))})
    }
