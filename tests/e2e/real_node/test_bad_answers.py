"""What a plugin answers cannot be done: the pod's Event says why, the connection to the runtime stays, the device comes back."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import pytest
from nodedevice_api.names import REQUIRED_PLUGINS_ANNOTATION
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.cluster.node.containerd import CDI_DIR
from tests.e2e.real_node.device_plugins import Kind
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import Json, container, pod

Answer = Callable[[Sequence[str]], api_pb2.ContainerAllocateResponse]
_LOST = "container runtime unreachable; retrying"
_UNKNOWN_CDI = "unresolvable CDI devices e2e.example.com/cdi="


@dataclass(frozen=True)
class Bad:
    """answer: of Allocate. said: in an Event of the pod."""

    answer: api_pb2.ContainerAllocateResponse
    message: str


def _devices(*pairs: tuple[str, str]) -> api_pb2.ContainerAllocateResponse:
    """Of container and host path."""
    devices = [api_pb2.DeviceSpec(container_path=c, host_path=h, permissions="rw") for c, h in pairs]
    return api_pb2.ContainerAllocateResponse(devices=devices)


def _mounts(*pairs: tuple[str, str]) -> api_pb2.ContainerAllocateResponse:
    mounts = [api_pb2.Mount(container_path=c, host_path=h) for c, h in pairs]
    return api_pb2.ContainerAllocateResponse(mounts=mounts)


BAD = {
    "a tree of files": Bad(_devices(("/dev/a", "/sys")), "directory /sys of the host has more than"),
    "one place for two devices": Bad(
        _devices(("/dev/a", "/dev/null"), ("/dev//a", "/dev/zero")), "are both at /dev/a in the container"
    ),
    "over everything": Bad(_mounts(("/", "/tmp")), "the mount of /tmp over / of the container"),
    "no such mount": Bad(_mounts(("/here", "/e2e-none")), "/e2e-none"),
    "a name that takes away": Bad(api_pb2.ContainerAllocateResponse(envs={"-PATH": "x"}), "'-PATH' cannot be the name"),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_it_is_reported_and_harms_nobody(nri_node: NodeUnderTest, bad: Bad) -> None:
    rw = nri_node.kinds["rw"]
    with _connection_kept(nri_node):
        with _answering(nri_node, rw, lambda _: bad.answer):
            nri_node.create(pod("bad", [container("main", {rw.resource: 1})]))
            _wait_event(nri_node, "bad", bad.message)
        assert not nri_node.starts("bad")
        nri_node.run(pod("good", [container("main", {rw.resource: 1})]))
        _delete(nri_node, rw, "bad", "good")


@pytest.mark.kubelet("weak spot 24")
def test_two_plugins_that_want_different_things(nri_node: NodeUnderTest) -> None:
    rw, ro = nri_node.kinds["rw"], nri_node.kinds["ro"]
    asked = {rw.resource: 1, ro.resource: 1}
    with _connection_kept(nri_node), _answering(nri_node, rw, _env("one")), _answering(nri_node, ro, _env("another")):
        nri_node.create(pod("bad", [container("main", asked)]))
        _wait_event(nri_node, "bad", "differently; fix one of them")
        assert not nri_node.starts("bad")
        _delete(nri_node, rw, "bad")
        nri_node.wait_numbers(ro.resource, allocated=0, releasing=0, available=1)


@contextmanager
def _another_name(of: NodeUnderTest) -> Iterator[None]:
    cdi = of.kinds["cdi"]
    unknown = api_pb2.ContainerAllocateResponse(cdi_devices=[api_pb2.CDIDevice(name=f"{cdi.resource}=none")])
    with _answering(of, cdi, lambda _: unknown):
        yield


@contextmanager
def _no_directory(of: NodeUnderTest) -> Iterator[None]:
    shutil.rmtree(of.node.outside(CDI_DIR))
    try:
        yield
    finally:
        of.write_cdi()


@contextmanager
def _no_specification(of: NodeUnderTest) -> Iterator[None]:
    """As of a plugin that was cut off while it wrote."""
    (file,) = of.node.outside(CDI_DIR).iterdir()
    usual = file.read_text()
    file.write_text(usual[: len(usual) // 2])
    try:
        yield
    finally:
        file.write_text(usual)


@pytest.mark.parametrize(
    "gone", [_another_name, _no_directory, _no_specification], ids=["another name", "no directory", "cut off"]
)
def test_a_cdi_device_that_the_runtime_does_not_know(
    nri_node: NodeUnderTest, gone: Callable[[NodeUnderTest], AbstractContextManager[None]]
) -> None:
    cdi = nri_node.kinds["cdi"]
    with _connection_kept(nri_node):
        with gone(nri_node):
            nri_node.create(pod("bad", [container("main", {cdi.resource: 1})]))
            _wait_event(nri_node, "bad", _UNKNOWN_CDI)
            assert not nri_node.starts("bad")
            nri_node.delete("bad")
        nri_node.wait_numbers(cdi.resource, allocated=0, releasing=0, available=1)
        nri_node.run(pod("good", [container("main", {cdi.resource: 1})]))
        assert nri_node.seen("good").env["CDI_CDI_0"] == "yes"
        nri_node.delete("good")


def test_a_static_pod_whose_author_chose_its_uid(nri_node: NodeUnderTest) -> None:
    rw = nri_node.kinds["rw"]
    body = pod("chosen", [container("main", {rw.resource: 1})])
    body["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    body["metadata"]["annotations"] = {REQUIRED_PLUGINS_ANNOTATION: "[ nodedevice ]"}
    with _connection_kept(nri_node):
        with nri_node.static(body) as name:
            _wait_event(nri_node, name, "remove metadata.uid from the manifest")
            assert not nri_node.starts(name)
        nri_node.wait_numbers(rw.resource, allocated=0, releasing=0, available=3)


@contextmanager
def _answering(of: NodeUnderTest, kind: Kind, answer: Answer) -> Iterator[None]:
    knobs = of.plugins.by_resource[kind.resource].knobs
    usual, knobs.allocate_answer = knobs.allocate_answer, answer
    try:
        yield
    finally:
        knobs.allocate_answer = usual


def _env(value: str) -> Answer:
    return lambda _: api_pb2.ContainerAllocateResponse(envs={"E2E_SAME": value})


@contextmanager
def _connection_kept(of: NodeUnderTest) -> Iterator[None]:
    log = of.node.folder / "logs" / "agent.log"
    before = log.read_text().count(_LOST)
    yield
    assert log.read_text().count(_LOST) == before


def _wait_event(of: NodeUnderTest, name: str, message: str) -> None:
    of.wait(name, _is_known, "is in the API")
    of.wait(name, lambda _: any(message in event for event in of.events(name)), f"has an Event with: {message}")


def _is_known(found: Json) -> bool:
    return bool(found)


def _delete(of: NodeUnderTest, kind: Kind, *names: str) -> None:
    of.delete(*names)
    of.wait_numbers(kind.resource, allocated=0, releasing=0, available=len(kind.files))
