"""Devices of claims, as a kubelet shows them in its pod resources: one row each, whatever a driver has answered."""

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.attribution.attribute import PodResourcesRow
from nodedevice_agent.kubelet import codec
from nodedevice_agent.kubelet.readings import ClaimRow, HeldByPod
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2

DRIVER = "gpu.example.com"
Device = api_pb2.ClaimResource
Claim = api_pb2.DynamicResource


def device(name: str, *cdi: str, driver: str = DRIVER, pool: str = "node-1", share: str | None = None) -> Device:
    cdi_devices = [api_pb2.CDIDevice(name=each) for each in cdi]
    return Device(driver_name=driver, pool_name=pool, device_name=name, cdi_devices=cdi_devices, share_id=share)


def claim(*devices: Device, name: str = "claim", namespace: str = "default") -> Claim:
    return Claim(claim_name=name, claim_namespace=namespace, claim_resources=devices)


def container(*claims: Claim, name: str = "main") -> api_pb2.ContainerResources:
    return api_pb2.ContainerResources(name=name, dynamic_resources=claims)


def pod(*containers: api_pb2.ContainerResources, name: str = "p") -> api_pb2.PodResources:
    return api_pb2.PodResources(namespace="default", name=name, containers=containers)


def decoded(*containers: api_pb2.ContainerResources) -> HeldByPod:
    return codec.rows_of_pod(api_pb2.GetPodResourcesResponse(pod_resources=pod(*containers)).SerializeToString())


def listed(*pods: api_pb2.PodResources) -> dict[tuple[str, str], HeldByPod]:
    return codec.all_rows(api_pb2.ListPodResourcesResponse(pod_resources=pods).SerializeToString())


def row(name: str, *cdi: str, container: str = "main", share: str = "", pool: str = "node-1") -> ClaimRow:
    return ClaimRow("default", "p", container, "claim", DRIVER, pool, name, share, cdi)


def test_a_row_has_all_that_the_kubelet_knows() -> None:
    found = decoded(container(claim(device("gpu-0", "v.com/c=0", share="5d4e"))), container(name="side"))
    assert found == HeldByPod((), (row("gpu-0", "v.com/c=0", share="5d4e"),))


def test_a_pod_without_devices_of_plugins_is_listed() -> None:
    both = container(claim(device("gpu-0")))
    both.devices.add(resource_name="example.com/nic", device_ids=["n"])
    found = listed(pod(container(claim(device("gpu-0")))), pod(container(), name="none"), pod(both, name="both"))
    nic = PodResourcesRow("default", "both", "main", "example.com/nic", ("n",))
    assert found == {
        ("default", "p"): HeldByPod((), (row("gpu-0"),)),
        ("default", "both"): HeldByPod((nic,), (replace(row("gpu-0"), name="both"),)),
    }


def test_a_pod_that_is_listed_twice_has_the_devices_of_both() -> None:
    twice = [pod(container(claim(device(name)))) for name in ("a", "b")]
    assert listed(*twice) == {("default", "p"): HeldByPod((), (row("a"), row("b")))}


@pytest.mark.parametrize(
    ("shown", "own"),
    [
        pytest.param([("a", "x=a"), ("b", "x=a", "x=b")], [("a", "x=a"), ("b", "x=b")], id="each has those before it"),
        pytest.param([("a", "x=a"), ("b", "x=b")], [("a", "x=a"), ("b", "x=b")], id="each has its own"),
        pytest.param([("a",), ("b", "x=b")], [("a",), ("b", "x=b")], id="only the second has a name"),
        pytest.param([("a", "", "y" * 257), ("b", "", "y" * 257, "x=b")], [("a",), ("b", "x=b")], id="no names"),
        pytest.param([("a", "x", "y" * 256)], [("a", "x", "y" * 256)], id="the shortest and the longest"),
    ],
)
def test_a_device_has_its_own_cdi_names(shown: list[tuple[str, ...]], own: list[tuple[str, ...]]) -> None:
    found = decoded(container(claim(*(device(*each) for each in shown))))
    assert found.claim_rows == tuple(row(*each) for each in own)


def test_cdi_names_of_another_driver_are_not_cut() -> None:
    found = decoded(container(claim(device("a", "x=a"), device("b", "x=a", driver="other.example.com"))))
    assert [each.cdi_ids for each in found.claim_rows] == [("x=a",), ("x=a",)]


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(device(""), id="no device"),
        pytest.param(device("a" * 64), id="a long device"),
        pytest.param(device("GPU"), id="an upper-case device"),
        pytest.param(device("a", pool=""), id="no pool"),
        pytest.param(device("a", driver=""), id="no driver"),
        pytest.param(device("a", driver="d" * 64), id="a long driver"),
        pytest.param(device("a", driver="\u212a.com"), id="a driver that folds to ASCII"),
    ],
)
def test_what_no_device_can_have_is_left_out(odd: Device) -> None:
    assert decoded(container(claim(odd, device("b")))).claim_rows == (row("b"),)


@pytest.mark.parametrize("name", ["c", "c" * 253])
def test_what_the_api_allows_is_kept(name: str) -> None:
    longest = device("a" * 63, pool="a.b-c/0" + "d" * 246, driver="d" * 63)
    found = decoded(container(claim(longest, device("b", driver="GPU.Example.com"), name=name)))
    assert [(each.claim, each.driver, len(each.pool), len(each.device)) for each in found.claim_rows] == [
        (name, "d" * 63, 253, 63),
        (name, "GPU.Example.com", 6, 1),
    ]


@pytest.mark.parametrize(
    "odd", [claim(device("a"), namespace="other"), claim(device("a"), name=""), claim(device("a"), name="c" * 254)]
)
def test_a_claim_that_no_pod_can_have_is_left_out(odd: Claim) -> None:
    assert decoded(container(odd)) == HeldByPod()


def test_a_pod_and_a_node_have_a_bounded_number_of_rows() -> None:
    many = container(claim(*(device(f"d{number}", f"x={number}") for number in range(1100))))
    assert len(decoded(many).claim_rows) == codec.MAX_CLAIM_ROWS_OF_POD
    found = listed(*(pod(many, name=f"p{number}") for number in range(10)))
    assert sum(len(held.claim_rows) for held in found.values()) == codec.MAX_CLAIM_ROWS
