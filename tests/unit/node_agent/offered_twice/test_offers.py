"""What device managers and pools offer, in one form: who answers for it, and what of the host is known."""

import pytest
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.offered_twice.identities import Node
from nodedevice_agent.offered_twice.offers import MOST_PATHS, Host, paths_of, program_of
from nodedevice_agent.offered_twice.sources import Source


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


def _paths(source: Source, *devices: Device) -> tuple[str, ...]:
    work = paths_of(devices, source)
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: tuple[str, ...] = end.value
            return found


def test_the_files_that_a_list_names() -> None:
    devices = [Device("/dev/a1::0"), Device("/dev/a1::1"), Device("/srv/b"), Device("c", files=(("/dev/d4", "c1:4"),))]
    assert _paths(Source.KUBELET, *devices) == ("/dev/a1",)
    assert _paths(Source.BUILT_IN, *devices) == ("/dev/d4",)
    assert len(_paths(Source.KUBELET, *(Device(f"/dev/a{n}") for n in range(MOST_PATHS + 9)))) == MOST_PATHS
