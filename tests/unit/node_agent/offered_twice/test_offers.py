"""What device managers and pools offer, in one form: who answers for it, and what of the host is known."""

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN, PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.offered_twice.compare import Offer
from nodedevice_agent.offered_twice.files import Host, Node
from nodedevice_agent.offered_twice.offers import (
    MOST_PATHS,
    PoolOffer,
    held_of_pool,
    known_of,
    offer_of,
    offer_of_pool,
    paths_of,
    program_of,
    statements_of,
)
from nodedevice_agent.offered_twice.sources import Raw, Source, identities_of

from tests.fakes.steps import finished
from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, pod
from tests.unit.node_agent.offered_twice.offered import NUMBER, PATH, UUID


@pytest.mark.parametrize(
    ("one", "other", "are_one"),
    [
        ((Source.KUBELET, "a.com/gpu"), (Source.KUBELET, "a.com/nic"), True),
        ((Source.KUBELET, "a.com/gpu"), (Source.KUBELET, "b.com/gpu"), False),
        ((Source.KUBELET, "a.com/gpu"), (Source.PLUGIN, "a.com/nic"), False),
        ((Source.PLUGIN, "a.com/gpu"), (Source.PLUGIN, "b.com/gpu"), False),
        ((Source.PLUGIN, "a.com/gpu"), (Source.BUILT_IN, "a.com/nic"), False),
        ((Source.BUILT_IN, "a.com/gpu"), (Source.BUILT_IN, "b.com/gpu"), True),
        ((Source.DRA, "gpu.a.com"), (Source.DRA, "gpu.a.com"), True),
        ((Source.DRA, "gpu.a.com"), (Source.DRA, "nic.a.com"), False),
    ],
)
def test_who_answers_for_what_is_offered(one: tuple[Source, str], other: tuple[Source, str], are_one: bool) -> None:
    assert (program_of(*one) == program_of(*other)) is are_one


def test_what_is_known_of_files() -> None:
    seen = Node("/dev/a1", "c1:1", "/dev/a1", is_own=True)
    given = (Node("/dev/a1"), Node("/dev/a1", "c1:9"), Node("/dev/b2", "c1:2"), Node("/dev/c3"))
    host = Host({"/dev/a1": seen}, {"v/c=one": given[:2], "v/c=two": given[1:]})
    assert host.named(["/dev/a1", "/dev/b2", "", "/dev/a1"]) == (seen, Node("/dev/b2"))
    assert host.of_cdi(["v/c=one", "v/c=two", "v/c=three"]) == (
        seen,
        Node("/dev/a1", "c1:9", "/dev/a1", is_own=True),
        Node("/dev/b2", "c1:2"),
        Node("/dev/c3"),
    )


def _listed(source: Source, *devices: Device) -> Offer:
    """Of one of ours, of a plugin or of a built-in one, or of the kubelet's."""
    scope = f"{BUILT_IN}nvml" if source is Source.BUILT_IN else ""
    scenario = Scenario.with_plugin(devices, options=PluginOptions(scope=scope))
    return offer_of(scenario.manager.resources[GPU], is_kubelets=source is Source.KUBELET)


def _paths(source: Source, *devices: Device) -> tuple[str, ...]:
    return finished(paths_of(_listed(source, *devices)))


def _known(source: Source, *devices: Device) -> dict[str, tuple[str, ...]]:
    return finished(known_of(_listed(source, *devices), HOST))


def test_the_files_that_a_list_names() -> None:
    devices = [Device("/dev/a1::0"), Device("/dev/a1::1"), Device("/srv/b"), Device("c", files=(("/dev/d4", "c1:4"),))]
    assert _paths(Source.KUBELET, *devices) == ("/dev/a1",)
    assert _paths(Source.BUILT_IN, *devices) == ("/dev/d4",)
    assert len(_paths(Source.KUBELET, *(Device(f"/dev/a{n}") for n in range(MOST_PATHS + 9)))) == MOST_PATHS


TTY = Node(PATH, NUMBER, PATH, is_own=True)
HOST = Host({PATH: TTY}, {"v/c=a": (TTY,)})


def test_a_built_in_device_is_known_by_the_files_that_it_names() -> None:
    known = _known(Source.BUILT_IN, Device("d", files=((PATH, NUMBER),)))
    assert known == {"d": identities_of(Source.BUILT_IN, Raw("d", nodes=(TTY,)))}
    assert known["d"] != identities_of(Source.BUILT_IN, Raw("d", nodes=(Node(PATH),))), "its number is the host's word"


def test_which_devices_pods_can_get_or_have() -> None:
    """Shares by the device that they are of."""
    scenario = Scenario.with_plugin(["a", Device("sick", healthy=False), "s::0", "s::1", Device("t::0", healthy=False)])
    scenario.run(pod("p", gpu=1))
    found = offer_of(scenario.manager.resources[GPU])
    ids = ("a", "sick", "s", "t", "unknown")
    assert [device_id for device_id in ids if found.is_held(device_id)] == ["a"]
    assert [device_id for device_id in ids if found.is_offered(device_id)] == ["a", "s"]
    assert (found.resource_name, found.program, found.scope) == (GPU, "PLUGIN example.com", f"PLUGIN {GPU}")
    # one that is held is offered, whatever its health
    scenario.lists([Device("a", healthy=False)])
    assert found.is_offered("a")
    # ... or whether it is listed
    scenario.lists([])
    assert found.is_held("a")


def test_what_several_containers_may_have_is_not_known_by_a_file_of_the_kernel() -> None:
    fuse = Device("fuse", identity=("c10:229", "/devices/virtual/misc/fuse"))
    assert _known(Source.BUILT_IN, fuse) == {"fuse": ("c10:229",)}
    assert _known(Source.BUILT_IN, replace(fuse, is_shared=True)) == {}


@pytest.mark.parametrize("device_id", ["some-name", "pool/dev/a1", "/srv/a1"])
def test_an_id_that_is_no_path_below_dev_names_no_file(device_id: str) -> None:
    assert _paths(Source.PLUGIN, Device(device_id)) == ()
    assert _known(Source.PLUGIN, Device(device_id)) == {}


DRIVER = "gpu.vendor.example"


def _statements(found: PoolOffer, host: Host, known: Mapping[str, tuple[str, ...]]) -> object:
    return statements_of(offer_of_pool(found), held_of_pool(found), host, known)


def _pool(*names: str, held: Collection[str] = (), cdi: Mapping[str, tuple[str, ...]] | None = None) -> PoolOffer:
    """Of a driver that says nothing of its devices but which CDI devices they are."""
    pool: Any = SimpleNamespace(driver=DRIVER, devices=dict.fromkeys(names, SimpleNamespace(attributes={}, taints=())))
    return PoolOffer(f"{DRIVER}/devices", pool, held, cdi or {})


def test_the_files_of_a_drivers_device_say_what_it_is() -> None:
    """But for those of instances of a GPU."""
    found = _pool("a", "b", cdi={"a": ("v/c=a",)})
    expected = identities_of(Source.DRA, Raw(nodes=(TTY,)), is_of_all=False)
    assert _statements(found, HOST, {}) == [(("a",), expected)]
    assert _statements(found, Host(), {}) == []
    [instance] = identities_of(Source.KUBELET, Raw(f"MIG-{UUID.removeprefix('GPU-')}"))
    assert _statements(found, HOST, {"a": (instance,)}) == []


@pytest.mark.parametrize(("names", "identities"), [(["a"], ("path:/dev/widget",)), (["a", "b"], ())])
def test_a_file_without_a_number_is_that_of_a_pools_only_device(names: list[str], identities: tuple[str, ...]) -> None:
    host = Host({}, {"v/c=a": (Node("/dev/widget"),)})
    assert _statements(_pool(*names, cdi={"a": ("v/c=a",)}), host, {}) == [(("a",), identities)]


def test_a_pools_device_is_offered_while_it_is_there_or_held() -> None:
    found = offer_of_pool(_pool("a", held=("gone",)))
    ids = ("a", "gone", "unknown")
    assert [device_id for device_id in ids if found.is_offered(device_id)] == ["a", "gone"]
    assert [device_id for device_id in ids if found.is_held(device_id)] == ["gone"]
    assert (found.resource_name, found.driver) == (f"{DRIVER}/devices", DRIVER)
    assert found.program == found.scope == program_of(Source.DRA, DRIVER)
