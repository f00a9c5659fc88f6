"""Responses to Allocate in a checkpoint, long lists that are parsed in slices, and details of devices beyond v1beta1."""

import pytest
from google.protobuf.message import DecodeError
from nodedevice_agent.devicemanager.container_edits import ContainerEdits, ContainerMount, DeviceFile
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.devices import MAX_NUMA_NODE, Device, ListedDevices
from nodedevice_agent.deviceplugin import codec
from nodedevice_agent.deviceplugin.codec import device_list, with_edits
from nodedevice_agent.lib.deviceplugin_server.server import list_to_wire
from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice
from nodedevice_api import parts
from nodedevice_api.device_details_pb2 import DeviceDetails, DeviceListDetails, PartRules
from nodedevice_api.names import Reason
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

EVERYTHING = api_pb2.ContainerAllocateResponse(
    envs={"GPUS": "a"},
    mounts=[api_pb2.Mount(container_path="/lib/gpu", host_path="/opt/gpu", read_only=True)],
    devices=[api_pb2.DeviceSpec(container_path="/dev/gpu0", host_path="/dev/gpu3", permissions="rw")],
    annotations={"gpu.example.com/a": "1"},
    cdi_devices=[api_pb2.CDIDevice(name="example.com/gpu=a")],
).SerializeToString()


def restored(response: bytes | None) -> Allocation:
    stored = Allocation("uid", "main", "example.com/gpu", {-1: ("a",)}, response)
    (found,) = with_edits(Checkpoint((stored,))).allocations
    assert found == stored
    return found


def test_a_stored_response_is_decoded() -> None:
    found = restored(EVERYTHING)
    assert found.edits == ContainerEdits(
        {"GPUS": "a"},
        (ContainerMount("/lib/gpu", "/opt/gpu", True),),
        (DeviceFile("/dev/gpu0", "/dev/gpu3", "rw"),),
        {"gpu.example.com/a": "1"},
        ("example.com/gpu=a",),
    )
    assert found.response_problem == ""


@pytest.mark.parametrize(
    ("response", "problem"), [(b"\xff", "AllocResp cannot be decoded (1 bytes)"), (None, "")], ids=["invalid", "lost"]
)
def test_a_response_without_edits(response: bytes | None, problem: str) -> None:
    found = restored(response)
    assert (found.edits, found.response_problem) == (None, problem)


BROKEN = PluginDevice("b", False, (1,), "Xid79", "reset it", (("model", "H100"), ("pciBusID", "0000:1b:00.0")))


def sent(*devices: PluginDevice, reason: str = "", message: str = "") -> bytes:
    return list_to_wire(devices, reason, message).SerializeToString()


def _list(*devices: api_pb2.Device, more: bytes = b"") -> bytes:
    return api_pb2.ListAndWatchResponse(devices=devices).SerializeToString() + more


def test_encoded_and_decoded() -> None:
    listed = device_list(sent(PluginDevice("a"), BROKEN, reason="DriverMismatch", message="reboot"))
    assert listed.devices["a"] == Device("a")
    assert listed.devices["b"] == Device("b", False, (1,), "Xid79", "reset it", BROKEN.attributes)
    assert listed.plugin_message == "reboot"


def test_the_numbers_are_not_upstreams() -> None:
    upstream = {field.number for field in api_pb2.Device.DESCRIPTOR.fields}
    ours = {field.number for field in DeviceDetails.DESCRIPTOR.fields} - {1}
    assert not upstream & ours
    assert min(ours) > 1000
    assert {field.number for field in DeviceListDetails.DESCRIPTOR.fields} - {1} <= ours


def test_whatever_a_plugin_sends_fits_the_api() -> None:
    attributes = {f"key-{number:03}": "v" * 999 for number in range(99)} | {"": "nameless", "a\n": "line\nbreak"}
    details = DeviceDetails(ID="a", reason="r" * 999, message="two\nlines" + "m" * 9999, attributes=attributes)
    listed = device_list(DeviceListDetails(devices=[details], message="x\x00" * 9999).SerializeToString())
    device = listed.devices["a"]
    assert (len(device.reason), len(device.message), len(device.attributes)) == (128, 1024, 32)
    assert device.message.startswith("two lines")
    assert dict(device.attributes)["a "] == "line break"
    assert all(name and len(name) <= 256 and len(value) <= 256 for name, value in device.attributes)
    assert len(listed.plugin_message) == 1024
    assert listed.plugin_message.isprintable()


def _plain_device(*more: bytes) -> bytes:
    return b"".join((_field(1, b"a"), _field(2, b"Healthy"), *more))


def _field(number: int, content: bytes) -> bytes:
    tag = number << 3 | 2
    return bytes([*([tag] if tag < 0x80 else [tag & 0x7F | 0x80, tag >> 7]), len(content)]) + content


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(_field(1, _plain_device(_field(1001, b"\xff"))), id="a reason that is not text"),
        pytest.param(_field(1, _plain_device(_field(1003, b"\xff\xff"))), id="attributes that are no map"),
        pytest.param(_field(1, _plain_device(_field(1003, _field(1, b"\xff")))), id="an attribute that is not text"),
        pytest.param(_field(1, _plain_device()) + _field(1002, b"\xff"), id="a message that is not text"),
    ],
)
def test_fields_of_another_vendor_do_not_affect_the_list(content: bytes) -> None:
    assert api_pb2.ListAndWatchResponse.FromString(content).devices[0].ID == "a"
    assert device_list(content) == ListedDevices({"a": Device("a")})


def test_attributes_are_bounded_over_all_devices() -> None:
    attributes = {f"key-{number:02}": "" for number in range(32)}
    details = [DeviceDetails(ID=f"{number:04}", attributes=attributes) for number in range(4200)]
    listed = device_list(DeviceListDetails(devices=details).SerializeToString())
    shown = [len(device.attributes) for device in listed.devices.values()]
    assert shown == [32] * 4096 + [0] * 104


@pytest.mark.parametrize("percent", [None, 0, 7, 100])
def test_rules_for_parts_encoded_and_decoded(percent: int | None) -> None:
    ways = parts.Placement.DISTINCT_PARENTS, parts.Choice.SPREAD, parts.PodPlacement.APART, parts.Advertise.LARGEST
    rules = parts.PartRules(*ways, percent)
    found = device_list(list_to_wire([PluginDevice("a-0", parent="a")], "Odd", part_rules=rules).SerializeToString())
    assert (found.part_rules, found.plugin_message) == (rules, "Odd")


@pytest.mark.parametrize("percent", [-1, 101, 2**31 - 1])
def test_a_list_whose_percent_for_parts_is_none_is_refused(percent: int) -> None:
    rules = DeviceListDetails(parts=PartRules(sm_percent=percent)).SerializeToString()
    found = device_list(sent(PluginDevice("a-0", parent="a")) + rules)
    assert found.devices == {}
    assert f"sm_percent for parts is {percent}, and must be a percentage from 0 to 100" in found.id_error


@pytest.mark.parametrize("rule", ["placement", "choice", "containers", "advertise"])
def test_a_list_with_an_unknown_rule_for_parts_is_refused(rule: str) -> None:
    rules = PartRules()
    setattr(rules, rule, "Odd")
    octets = DeviceListDetails(parts=rules).SerializeToString()
    found = device_list(sent(PluginDevice("a-0", parent="a")) + octets)
    assert found.devices == {}
    assert f"its rule {rule} for parts is 'Odd', and must be one of " in found.id_error
    # without parents the field is another vendor's
    assert set(device_list(sent(PluginDevice("a-0")) + octets).devices) == {"a-0"}


@pytest.mark.parametrize(
    ("health", "message"),
    [
        ("healthy", 'its plugin reports health "healthy", which is neither Healthy nor Unhealthy'),
        ("OK\x1b", 'its plugin reports health "OK ", which is neither Healthy nor Unhealthy'),
        ("Unhealthy", ""),
        ("", ""),
    ],
)
def test_a_health_that_there_is_not_is_named(health: str, message: str) -> None:
    listed = device_list(_list(api_pb2.Device(ID="a", health=health))).devices["a"]
    assert (listed.healthy, listed.message) == (False, message)


def test_the_highest_numa_node_counts() -> None:
    nodes = [api_pb2.NUMANode(ID=node) for node in (MAX_NUMA_NODE, MAX_NUMA_NODE + 1, 0, -1)]
    device = api_pb2.Device(ID="a", health="Healthy", topology=api_pb2.TopologyInfo(nodes=nodes))
    assert device_list(_list(device)).devices["a"].numa_nodes == (0, MAX_NUMA_NODE)


@pytest.mark.parametrize("size", [1, 40, 1 << 20])
def test_a_list_is_the_same_in_slices_of_any_size(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    details = DeviceListDetails(
        message="of all",
        devices=[DeviceDetails(ID=f"d{n}", reason=f"r{n}", attributes={"a": str(n)}) for n in range(9)],
        parents=[DeviceDetails(ID=f"p{n}", attributes={"b": str(n)}) for n in range(9)],
    )
    for n, device in enumerate(details.devices):
        device.MergeFromString(api_pb2.Device(health="Healthy" if n % 2 else "Unhealthy").SerializeToString())
    octets = details.SerializeToString()
    whole = device_list(octets)
    assert (len(whole.devices), len(whole.parents), whole.plugin_message) == (9, 9, "of all")
    monkeypatch.setattr(codec, "_SLICE_BYTES", size)
    assert device_list(octets) == whole


def test_a_device_that_is_far_too_long_is_its_id_and_its_health() -> None:
    nodes = [api_pb2.NUMANode()] * 200_000
    long = api_pb2.Device(ID="long", health="Healthy", topology=api_pb2.TopologyInfo(nodes=nodes))
    short = api_pb2.Device(ID="short", topology=api_pb2.TopologyInfo(nodes=nodes[:1]))
    listed = device_list(_list(short, long, short))
    shown = [(d.id, d.healthy, d.numa_nodes) for d in listed.devices.values()]
    assert shown == [("short", False, (0,)), ("long", True, ())]


def test_of_all_devices_together_so_many_numa_nodes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_NODES_OF_ALL", 3)
    nodes = api_pb2.TopologyInfo(nodes=[api_pb2.NUMANode(ID=1), api_pb2.NUMANode(ID=2)])
    listed = device_list(_list(*(api_pb2.Device(ID=i, topology=nodes) for i in "abc")))
    assert [device.numa_nodes for device in listed.devices.values()] == [(1, 2), (1, 2), ()]


def test_an_invalid_device_anywhere_is_an_invalid_list() -> None:
    with pytest.raises(DecodeError):
        device_list(_list(*[api_pb2.Device(ID="x" * 100)] * 2000, more=b"\x0a\x03\x0a\x05x"))


@pytest.mark.parametrize(("parent", "found"), [("a", "a"), ("a\0b", ""), ("x" * 5000, ""), ("", "")])
def test_a_parent_is_an_id_or_none(parent: str, found: str) -> None:
    assert device_list(sent(PluginDevice("a-0", parent=parent))).devices["a-0"].parent == found


@pytest.mark.parametrize("is_built_in", [False, True])
def test_that_a_device_is_not_confirmed_is_a_word_of_built_in_plugins(is_built_in: bool) -> None:
    device = PluginDevice("a", reason=Reason.DEVICE_UNCONFIRMED, message="x")
    found = device_list(sent(device), is_built_in=is_built_in)
    assert found.unconfirmed == ({"a"} if is_built_in else set())
    assert found.devices["a"].message == "x"
