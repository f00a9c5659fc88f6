"""Details of devices beyond v1beta1, encoded and decoded: reasons, attributes, and problems of the whole list."""

import pytest
from nodedevice_agent.devicemanager.devices import Device, ListedDevices
from nodedevice_agent.deviceplugin import codec
from nodedevice_agent.lib.deviceplugin_server.server import list_to_wire
from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice
from nodedevice_api.device_details_pb2 import DeviceDetails, DeviceListDetails
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

BROKEN = PluginDevice("b", False, (1,), "Xid79", "reset it", (("model", "H100"), ("pciBusID", "0000:1b:00.0")))


def sent(*devices: PluginDevice, reason: str = "", message: str = "") -> bytes:
    return list_to_wire(devices, reason, message).SerializeToString()


def received(content: bytes) -> ListedDevices:
    return codec.device_list(content)


def test_encoded_and_decoded() -> None:
    listed = received(sent(PluginDevice("a"), BROKEN, reason="DriverMismatch", message="reboot"))
    assert listed.devices["a"] == Device("a")
    assert listed.devices["b"] == Device("b", False, (1,), "Xid79", "reset it", BROKEN.attributes)
    assert listed.plugin_message == "reboot"


def test_a_v1beta1_client_sees_v1beta1() -> None:
    # a message of the upstream fields alone, parsed from what we send
    device = api_pb2.ListAndWatchResponse.FromString(sent(BROKEN)).devices[0]
    device.DiscardUnknownFields()
    plain = api_pb2.Device(ID="b", health="Unhealthy", topology=api_pb2.TopologyInfo(nodes=[api_pb2.NUMANode(ID=1)]))
    assert device.SerializeToString() == plain.SerializeToString()


def test_a_plugin_without_details_sends_plain_v1beta1() -> None:
    expected = api_pb2.ListAndWatchResponse(devices=[api_pb2.Device(ID="a", health="Healthy")])
    assert sent(PluginDevice("a")) == expected.SerializeToString()


def test_the_numbers_are_not_upstreams() -> None:
    upstream = {field.number for field in api_pb2.Device.DESCRIPTOR.fields}
    ours = {field.number for field in DeviceDetails.DESCRIPTOR.fields} - {1}
    assert not upstream & ours
    assert min(ours) > 1000
    assert {field.number for field in DeviceListDetails.DESCRIPTOR.fields} - {1} <= ours


def test_whatever_a_plugin_sends_fits_the_api() -> None:
    attributes = {f"key-{number:03}": "v" * 999 for number in range(99)} | {"": "nameless", "a\n": "line\nbreak"}
    details = DeviceDetails(ID="a", reason="r" * 999, message="two\nlines" + "m" * 9999, attributes=attributes)
    listed = received(DeviceListDetails(devices=[details], message="x\x00" * 9999).SerializeToString())
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
        pytest.param(_field(1, _plain_device(_field(1001, b"\xff"))), id="a reason that is no text"),
        pytest.param(_field(1, _plain_device(_field(1003, b"\xff\xff"))), id="attributes that are no map"),
        pytest.param(_field(1, _plain_device(_field(1003, _field(1, b"\xff")))), id="an attribute that is no text"),
        pytest.param(_field(1, _plain_device()) + _field(1002, b"\xff"), id="a message that is no text"),
    ],
)
def test_fields_of_another_vendor_do_not_affect_the_list(content: bytes) -> None:
    assert api_pb2.ListAndWatchResponse.FromString(content).devices[0].ID == "a"
    assert received(content) == ListedDevices({"a": Device("a")})


def test_attributes_are_bounded_over_all_devices() -> None:
    attributes = {f"key-{number:02}": "" for number in range(32)}
    details = [DeviceDetails(ID=f"{number:04}", attributes=attributes) for number in range(4200)]
    listed = received(DeviceListDetails(devices=details).SerializeToString())
    shown = [len(device.attributes) for device in listed.devices.values()]
    assert shown == [32] * 4096 + [0] * 104
