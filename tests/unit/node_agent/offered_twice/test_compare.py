"""Which devices are one, and which are not although something of them is equal."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.offered_twice.compare import Kept, Offer, find
from nodedevice_agent.offered_twice.files import Node
from nodedevice_agent.offered_twice.sources import Raw, Source

from tests.unit.node_agent.offered_twice.offered import NUMBER, PATH, PCI, UUID, findings, offer, pairs

BUS = "resource.kubernetes.io/pciBusID"
MIG = "MIG-11111111-2222-3333-4444-55555555555{}"
NVIDIA0, CONTROL = Node("/dev/nvidia0", "c195:0"), Node("/dev/nvidiactl", "c195:255")
ADAPTER = Node("/dev/infiniband/uverbs0", "c231:192", "/dev/infiniband/uverbs0", True)
FUSE, TTY = Node("/dev/fuse", "c10:229", "/dev/fuse"), Node(PATH, NUMBER, PATH, True)

NOT_ONE: dict[str, Sequence[Offer]] = {
    "VF and PF": (
        offer(Source.KUBELET, [Raw("0000:3b:00.0")]),
        offer(Source.DRA, [Raw("vf-0", {BUS: "0000:3b:02.0", "x.example.com/pfPciAddress": "0000:3b:00.0"})]),
    ),
    "a VF that names its PF alone": (
        offer(Source.KUBELET, [Raw("0000:3b:00.0")]),
        offer(Source.DRA, [Raw("vf-0", {"x.example.com/parentPciAddress": "0000:3b:00.0"})]),
    ),
    "VFs that have the PF's address": (
        offer(Source.KUBELET, [Raw("0000:3b:00.0")]),
        offer(Source.DRA, [Raw("vf-0", {BUS: "0000:3b:00.0"}), Raw("vf-1", {BUS: "0000:3b:00.0"})]),
    ),
    "two MIG instances of one GPU": (
        offer(Source.KUBELET, [Raw(MIG.format(0))]),
        offer(Source.DRA, [Raw("mig-1", {"g.example.com/uuid": MIG.format(1), BUS: PCI})]),
        offer(
            Source.BUILT_IN, [Raw(MIG.format(2), {"pciBusID": PCI}, (UUID, "c195:0", MIG.format(2)), is_shared=True)]
        ),
    ),
    "an instance and its GPU": (
        offer(Source.KUBELET, [Raw(UUID)]),
        offer(Source.DRA, [Raw("mig-1", {"g.example.com/uuid": MIG.format(1), "g.example.com/parentUUID": UUID})]),
        offer(
            Source.BUILT_IN, [Raw(MIG.format(2), {"pciBusID": PCI}, (UUID, "c195:0", MIG.format(2)), is_shared=True)]
        ),
    ),
    "two ports of an adapter": (
        offer(Source.KUBELET, [Raw("0000:3b:00.0")]),
        offer(
            Source.DRA,
            [Raw("port-1", {BUS: "0000:3b:00.1", "n.example.com/serial": "S1", "n.example.com/vendor": "15b3"})],
        ),
    ),
    "two ports with one serial number": (
        offer(
            Source.DRA, [Raw("a", {BUS: "0000:3b:00.0", "serial": "S1", "vendor": "15b3"})], name="one.example.com/d"
        ),
        offer(
            Source.DRA, [Raw("b", {BUS: "0000:3b:00.1", "serial": "S1", "vendor": "15b3"})], name="two.example.com/d"
        ),
    ),
    "shares of one device, of one source": (offer(Source.KUBELET, [Raw(f"{UUID}::0"), Raw(f"{UUID}::1")]),),
    "shares by other names": (
        offer(Source.KUBELET, [Raw(UUID)]),
        offer(Source.DRA, [Raw("share-0", {"g.example.com/uuid": UUID}), Raw("share-1", {"g.example.com/uuid": UUID})]),
    ),
    "one serial twice": (
        offer(Source.BUILT_IN, [Raw("usb", tokens=("/usb/0403:6001:A50285BI/1.0/ttyUSB#0",))]),
        offer(
            Source.DRA,
            [Raw(name, {"x/serial": "A50285BI", "x/vendor": "0403"}) for name in ("tty-0", "tty-1")],
        ),
    ),
    "a serial that is not its own": (
        offer(Source.BUILT_IN, [Raw("usb", tokens=("/usb/0403:6001:A50285BI@1-2/1.0/ttyUSB#0",))]),
        offer(Source.DRA, [Raw("tty-0", {"x/serial": "A50285BI", "x/vendor": "0403"})]),
    ),
    "one serial of two makers": (
        offer(Source.DRA, [Raw("a", {"x/serial": "123456", "x/vendor": "0403"})], name="one.example.com/d"),
        offer(Source.DRA, [Raw("b", {"x/serial": "123456", "x/vendor": "15b3"})], name="two.example.com/d"),
    ),
    "a serial that says nothing": (
        offer(Source.DRA, [Raw("a", {"x/serial": "0000", "x/vendor": "0403"})], name="one.example.com/d"),
        offer(Source.DRA, [Raw("b", {"x/serial": "0000", "x/vendor": "0403"})], name="two.example.com/d"),
    ),
    "the driver's control file": (
        offer(Source.KUBELET, files=[(("a",), [CONTROL])], is_only=True),
        offer(Source.DRA, files=[(("b",), [CONTROL])], is_only=True),
    ),
    "the kernel's file": (
        offer(Source.KUBELET, files=[(("a",), [FUSE])]),
        offer(Source.DRA, files=[(("b",), [FUSE])]),
    ),
    "a file that two devices of a source have": (
        offer(Source.KUBELET, files=[(("a",), [TTY]), (("b",), [TTY])]),
        offer(Source.DRA, files=[(("c",), [TTY])]),
    ),
    "a GPU's file with its instance": (
        offer(Source.KUBELET, [Raw(UUID)], files=[((UUID,), [NVIDIA0])]),
        offer(Source.BUILT_IN, [Raw(MIG.format(2), tokens=(UUID, "c195:0", MIG.format(2)), is_shared=True)]),
    ),
    "an adapter, and a GPU with its files": (
        offer(Source.KUBELET, [Raw(UUID)], files=[((UUID,), [NVIDIA0, ADAPTER])]),
        offer(Source.DRA, [Raw("nic", {BUS: PCI})], files=[(("nic",), [ADAPTER])]),
    ),
    "an adapter of which nothing but its path is known, and a GPU with its files": (
        offer(Source.KUBELET, [Raw(UUID)], files=[((UUID,), [NVIDIA0, Node("/dev/infiniband/uverbs0")])]),
        offer(Source.DRA, [Raw("nic", {BUS: PCI})], files=[(("nic",), [ADAPTER])]),
    ),
    "two GPUs, and a file of both": (
        offer(Source.KUBELET, [Raw(UUID)], files=[((UUID,), [NVIDIA0])]),
        offer(Source.DRA, [Raw("g", {"g/uuid": UUID.replace("0", "1")})], files=[(("g",), [NVIDIA0])]),
    ),
    "two resources of one vendor's plugin": (
        offer(Source.KUBELET, [Raw(UUID)], name="example.com/gpu"),
        offer(Source.KUBELET, [Raw(UUID)], name="example.com/gpu.shared"),
    ),
    "a UUID of nothing but zeros": (
        offer(Source.KUBELET, [Raw("00000000-0000-0000-0000-000000000000")]),
        offer(Source.DRA, [Raw("a", {"x/uuid": "00000000-0000-0000-0000-000000000000"})]),
    ),
    "names that count": (
        offer(Source.KUBELET, [Raw("gpu-0"), Raw("GPU-1")]),
        offer(Source.DRA, [Raw("gpu-0", {"x/uuid": "gpu-0"}), Raw("gpu-1", {"x/index": 1})]),
    ),
    "a device that no pod can get there": (
        offer(Source.KUBELET, [Raw(UUID)]),
        offer(Source.DRA, [Raw("a", {"x/uuid": UUID})], out=["a"]),
    ),
}
ONE: dict[str, Sequence[Offer]] = {
    "resources of two vendors' plugins": (
        offer(Source.KUBELET, [Raw(UUID)], name="one.example.com/gpu"),
        offer(Source.KUBELET, [Raw(UUID)], name="two.example.com/gpu"),
    ),
    "two drivers": (
        offer(Source.DRA, [Raw("a", {"x/uuid": UUID})], name="one.example.com/devices"),
        offer(Source.DRA, [Raw("b", {"x/uuid": UUID})], name="two.example.com/devices"),
    ),
    "shares by NVIDIA's names": (
        offer(Source.KUBELET, [Raw(UUID)]),
        offer(Source.DRA, [Raw("g", {"x/uuid": UUID})]),
    ),
    "an instance by its own UUID": (
        offer(Source.KUBELET, [Raw(MIG.format(1))]),
        offer(Source.BUILT_IN, [Raw(MIG.format(1), tokens=(UUID, "c195:0", MIG.format(1)), is_shared=True)]),
    ),
    "of several attributes the plain one": (
        offer(Source.KUBELET, [Raw(PCI)]),
        offer(Source.DRA, [Raw("a", {"x/pciAddress": PCI, "x/upstreamPciAddress": "0000:00:01.0"})]),
    ),
    "an adapter by its files": (
        offer(Source.KUBELET, files=[(("a",), [ADAPTER, Node("/dev/infiniband/rdma_cm")])]),
        offer(Source.DRA, [Raw("nic", {BUS: PCI})], files=[(("nic",), [ADAPTER])]),
    ),
    "one of two that a container holds": (
        offer(Source.KUBELET, files=[(("a", "b"), [TTY, CONTROL])]),
        offer(Source.DRA, files=[(("c",), [TTY])]),
    ),
    "a file of the only device on both sides": (
        offer(Source.KUBELET, files=[(("a",), [FUSE])], is_only=True),
        offer(Source.DRA, files=[(("b",), [FUSE])], is_only=True),
    ),
}


@pytest.mark.parametrize("offers", NOT_ONE.values(), ids=NOT_ONE.keys())
def test_these_are_not_one_device(offers: Sequence[Offer]) -> None:
    assert not findings(*offers)


@pytest.mark.parametrize("offers", ONE.values(), ids=ONE.keys())
def test_these_are_one_device(offers: Sequence[Offer]) -> None:
    assert len(pairs(*offers)) == 1


def test_both_sides_have_it_and_count_alike() -> None:
    kubelets = offer(Source.KUBELET, [Raw(UUID), Raw(PCI)], held=[UUID])
    driver = offer(Source.DRA, [Raw("a", {"x/uuid": UUID}), Raw("b", {BUS: PCI})], held=["a", "b"])
    found = findings(kubelets, driver)
    [here], [there] = found[kubelets.resource_name], found[driver.resource_name]
    assert (here.held_here, here.held_there, here.held_twice) == (1, 2, 1)
    assert (there.held_here, there.held_there, there.held_twice) == (2, 1, 1)
    assert {(b, a) for a, b in here.devices} == {*there.devices} == {(("a",), (UUID,)), (("b",), (PCI,))}


def test_a_file_in_two_containers_is_that_of_the_device_that_both_have() -> None:
    kubelets = offer(Source.KUBELET, files=[(("a", "b"), [TTY]), (("b", "c"), [TTY])])
    assert pairs(kubelets, offer(Source.DRA, files=[(("x",), [TTY])])) == {
        frozenset({(kubelets.resource_name, ("b",)), ("driver.example.com/devices", ("x",))})
    }


def test_a_file_that_was_shared_is_nobodys_while_one_pod_is_left() -> None:
    """Else the condition would come and go with the second pod on a device."""
    driver = offer(Source.DRA, files=[(("c",), [TTY])])
    one, both = (offer(Source.KUBELET, files=[((each,), [TTY]) for each in ids]) for ids in ("a", "ab"))
    kept = Kept()
    assert findings(one, driver, kept=kept)
    assert not findings(both, driver, kept=kept)
    assert not findings(one, driver, kept=kept)
    other = offer(Source.KUBELET, [Raw(UUID)], name="other.example.com/gpu")
    assert not findings(other, driver, kept=kept)
    assert findings(one, driver, kept=kept), "its source was away"


def test_what_is_no_file_is_shared_only_as_long_as_it_is() -> None:
    driver, kept = offer(Source.DRA, [Raw("g", {"x/uuid": UUID})]), Kept()
    twice = offer(Source.KUBELET, [Raw(f"0000:1b:00.{n}", nodes=(TTY,)) for n in (0, 1)])
    assert not findings(twice, driver, kept=kept)
    two = [Raw(name, {"x/uuid": UUID}) for name in ("g", "h")]
    plugin = offer(Source.KUBELET, [Raw(UUID)])
    assert not findings(plugin, offer(Source.DRA, two), kept=kept)
    assert findings(plugin, driver, kept=kept)


def _uuid(number: int) -> str:
    return f"GPU-{number:08x}-0000-4000-8000-{number:012x}"


@given(
    st.lists(st.integers(1, 400), unique=True, max_size=40),
    st.lists(st.integers(1, 400), unique=True, max_size=40),
    st.data(),
)
def test_every_planted_pair_is_found_and_no_other(theirs: list[int], drivers: list[int], data: st.DataObject) -> None:
    """Devices with identities of their own, of which some are in both sources, by any kind that both have."""
    by_pci = {n for n in drivers if data.draw(st.booleans())}
    kubelets = [Raw(f"0000:{n // 32:02x}:{n % 32:02x}.0" if n in by_pci else _uuid(n)) for n in theirs]
    both = [
        Raw(
            f"gpu-{n}",
            {"x/uuid": _uuid(n), BUS: f"0000:{n // 32:02x}:{n % 32:02x}.0", "x/serial": f"s{n}", "x/vendor": "v"},
        )
        for n in drivers
    ]
    found = pairs(offer(Source.KUBELET, kubelets), offer(Source.DRA, both))
    assert len(found) == len({*theirs} & {*drivers})
    assert all(len(pair) == 2 for pair in found)


def test_steps_and_work_grow_with_the_devices_alone() -> None:
    """Also where as many sources as a node has names offer the same devices."""

    def steps(sources: int, devices: int) -> int:
        offers = [
            offer(Source.KUBELET, [Raw(_uuid(n)) for n in range(1, devices + 1)], name=f"v{s}.example.com/gpu")
            for s in range(sources)
        ]
        return sum(1 for _ in find(offers, Kept()))

    assert steps(2, 1000) <= 2.2 * steps(2, 500)
    assert steps(64, 50) <= 2.2 * steps(32, 50)
    offers = [offer(Source.KUBELET, [Raw(UUID)], name=f"v{n}.example.com/gpu") for n in range(256)]
    found = findings(*offers)
    assert len(found) == 256, "each one knows of another"
    assert sum(map(len, found.values())) <= 4 * 256


def test_where_nothing_says_which_of_several_it_is_all_are_named() -> None:
    kubelets = offer(Source.KUBELET, files=[(("a", "b"), [TTY])])
    driver = offer(Source.DRA, files=[(("x", "y"), [TTY])])
    assert pairs(kubelets, driver) == {
        frozenset({(kubelets.resource_name, ("a", "b")), (driver.resource_name, ("x", "y"))})
    }


@pytest.mark.parametrize("there", [("x",), ("x", "y")])
def test_where_an_id_says_which_one_it_is_a_file_of_several_says_nothing_more(there: tuple[str, ...]) -> None:
    kubelets = offer(Source.KUBELET, [Raw(UUID)], files=[((UUID, "other"), [TTY])])
    driver = offer(Source.DRA, [Raw("x", {"x/uuid": UUID})], files=[(there, [TTY])])
    assert pairs(kubelets, driver) == {
        frozenset({(kubelets.resource_name, (UUID,)), (driver.resource_name, ("x",))}),
    }


def test_a_source_whose_device_no_pod_can_get_hides_no_other() -> None:
    kubelets, ours = offer(Source.KUBELET, [Raw(UUID)]), offer(Source.BUILT_IN, [Raw("x", tokens=(UUID,))])
    driver = offer(Source.DRA, [Raw("a", {"x/uuid": UUID})], out=["a"])
    assert pairs(kubelets, driver, ours) == {
        frozenset({(kubelets.resource_name, (UUID,)), (ours.resource_name, ("x",))})
    }
