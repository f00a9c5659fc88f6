"""Pods and containers of NRI: what is kept of them, and lists of them that arrive in pieces."""

import pytest
from google.protobuf.message import DecodeError
from nodedevice_agent.devicemanager.runtime import MOST_SHOWN, RuntimeDevice, Sandbox, shown_settings
from nodedevice_agent.nri import codec, synchronization
from nodedevice_agent.nri.synchronization import Synchronization
from nodedevice_api.names import CONTAINER_DEVICES_ANNOTATION, REQUIRED_PLUGINS_ANNOTATION
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.turns import Lines, turns


def test_of_a_pod_only_what_decides_is_kept() -> None:
    """A tenant's annotations have 256 KiB, and an agent is shown those of all pods of its node."""
    key = REQUIRED_PLUGINS_ANNOTATION
    deciding = {key: "a", f"{key}/pod": "b", f"{key}/container.main": "c", "kubernetes.io/config.hash": "d"}
    more = {f"{key}/container.other": "e", "f": "g"}
    message = api_pb2.PodSandbox(id="s", labels={"l": "x"}, annotations={**deciding, **more})
    assert codec.sandbox(message) == Sandbox("s", "", "", "")
    assert codec.sandbox_of(api_pb2.Container(name="main"), message).annotations == deciding


@pytest.mark.parametrize("state", [api_pb2.CONTAINER_RUNNING, api_pb2.CONTAINER_STOPPED])
@pytest.mark.parametrize("mark", ["vendor.com/a=1", ""])
def test_of_a_container_no_environment_is_kept(state: api_pb2.ContainerState.ValueType, mark: str) -> None:
    """Only digests, of one that runs without a mark; devices of a list's containers only with a mark."""
    marks = {CONTAINER_DEVICES_ANNOTATION: mark} if mark else {}
    file = api_pb2.LinuxDevice(path="/dev/a", type="c", major=1, minor=3)
    message = api_pb2.Container(
        id="c",
        state=state,
        env=["A=1", "B=2"],
        annotations={**marks, "more": "x"},
        linux=api_pb2.LinuxContainer(devices=[file]),
    )
    device = RuntimeDevice("/dev/a", "c", 1, 3)
    for made, has_devices in ((codec.shown_container(message), True), (codec.listed_container(message), bool(mark))):
        assert (made.env, made.annotations) == ((), marks)
        assert made.devices == ((device,) if has_devices else ())
        assert (made.shown is not None) == (not mark and state == api_pb2.CONTAINER_RUNNING)
    shown = codec.listed_container(message).shown
    if shown is not None:
        assert shown.may_have({"A": "1", "B": "2"}, ["/dev/a"])
        assert not shown.may_have({"A": "2"}, [])
        assert not shown.may_have({}, ["/dev/b"])


def test_settings_are_digests_up_to_a_number() -> None:
    """Of more of them it is not known whether the edits are among them."""
    env = [f"A{number}=x" for number in range(MOST_SHOWN - 1)]
    shown = shown_settings(env, ["/dev/a"])
    assert len(shown.digests or b"") == 4 * MOST_SHOWN
    assert not shown.may_have({"B": "x"}, [])
    assert shown_settings(env, ["/dev/a", "/dev/b"]).may_have({"B": "x"}, [])


# fields that NRI does not have, one of each type of the wire format: 9 a number, 10 eight bytes, 11 text, 13 four bytes
UNKNOWN = b"\x48\x80\x01" + b"\x51" + b"8" * 8 + b"\x5a\x02xy" + b"\x6d" + b"4" * 4


async def test_a_list_in_pieces() -> None:
    first = api_pb2.SynchronizeRequest(pods=[api_pb2.PodSandbox(id="p1")], more=True)
    last = api_pb2.SynchronizeRequest(
        pods=[api_pb2.PodSandbox(id="p2")], containers=[api_pb2.Container(id="c1"), api_pb2.Container(id="c2")]
    )
    made = Synchronization()
    assert await made.add(UNKNOWN + first.SerializeToString())
    assert not await made.add(last.SerializeToString() + UNKNOWN)
    assert [sandbox.id for sandbox in made.sandboxes] == ["p1", "p2"]
    assert [container.id for container in made.containers] == ["c1", "c2"]


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"\x0a", id="no length"),
        pytest.param(b"\x0a\x02x", id="cut off"),
        pytest.param(b"\x0a\x80", id="a length that does not end"),
        pytest.param(b"\x0a" + b"\x80" * 10 + b"\x01", id="a length of 71 bits"),
        pytest.param(b"\x0a\x01\xff", id="no pod"),
        pytest.param(b"\x12\x01\xff", id="no container"),
        pytest.param(b"\x0b", id="a group"),
        pytest.param(b"\x51" + b"8" * 7, id="seven of eight bytes"),
        pytest.param(b"\x18", id="no number"),
    ],
)
async def test_what_is_no_list_is_refused(message: bytes) -> None:
    with pytest.raises(DecodeError):
        await Synchronization().add(message)


async def test_a_long_message_leaves_turns_to_others() -> None:
    """Not one for each object either: a list has thousands."""
    environment = [f"{number:06}=" for number in range(3000)]
    containers = [api_pb2.Container(id=f"c{number}", env=environment) for number in range(100)]
    message = api_pb2.SynchronizeRequest(containers=containers).SerializeToString()
    with turns(Lines()) as found:
        await synchronization.Synchronization().add(message)
    assert 5 < found.count < 50
    assert found.most.cost < 100_000, found.most


def test_annotations_that_name_cdi_devices_are_read_at_a_creation_alone() -> None:
    of_cdi = {"cdi.k8s.io/x": "nvidia.com/gpu=all", "nvidia.cdi.k8s.io": "a", "nvidia.cdi.k8s.io/container.main": "b"}
    others = {"x": "1", "example.com/cdi.k8s.io": "2", "notcdi.k8s.io/x": "3"}
    message = api_pb2.Container(id="c", name="main", annotations={**of_cdi, **others})
    pod = api_pb2.PodSandbox(id="s", annotations={**of_cdi, **others})
    assert codec.created_container(message, ()).annotations == of_cdi
    assert codec.sandbox_of(message, pod).annotations == of_cdi
    assert codec.listed_container(message).annotations == {}
    assert codec.sandbox(pod).annotations == {}


def test_mounts_of_dev_null_are_read_at_a_creation_alone() -> None:
    mounts = [api_pb2.Mount(destination="/a/./b", source="/dev//null"), api_pb2.Mount(destination="/x", source="/x")]
    message = api_pb2.Container(id="c", mounts=mounts)
    assert codec.created_container(message, ()).null_mounts == ("/a/b",)
    assert codec.listed_container(message).null_mounts == ()
