"""What a plugin answers cannot be done: the pod's Event says why, the connection to the runtime stays, the device comes back."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import pytest
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.cluster.node.containerd import CDI_DIR
from tests.e2e.real_node.device_plugins import Answer
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, marked, pod

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
        with nri_node.answering(rw, lambda _: bad.answer):
            nri_node.create(pod("bad", [container("main", {rw.resource: 1})]))
            nri_node.wait_event("bad", bad.message)
        assert not nri_node.starts("bad")
        nri_node.run(pod("good", [container("main", {rw.resource: 1})]))
        nri_node.delete("bad", "good")
        nri_node.wait_free(rw)


@pytest.mark.kubelet("weak spot 24")
def test_two_plugins_that_want_different_things(nri_node: NodeUnderTest) -> None:
    rw, ro = nri_node.kinds["rw"], nri_node.kinds["ro"]
    asked = {rw.resource: 1, ro.resource: 1}
    with _connection_kept(nri_node), nri_node.answering(rw, _env("one")), nri_node.answering(ro, _env("another")):
        nri_node.create(pod("bad", [container("main", asked)]))
        nri_node.wait_event("bad", "differently; fix one of them")
        assert not nri_node.starts("bad")
        nri_node.delete("bad")
        for kind in (rw, ro):
            nri_node.wait_free(kind)


def _another_name(of: NodeUnderTest) -> AbstractContextManager[None]:
    cdi = of.kinds["cdi"]
    unknown = api_pb2.ContainerAllocateResponse(cdi_devices=[api_pb2.CDIDevice(name=f"{cdi.resource}=none")])
    return of.answering(cdi, lambda _: unknown)


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
            nri_node.wait_event("bad", _UNKNOWN_CDI)
            assert not nri_node.starts("bad")
            nri_node.delete("bad")
        nri_node.wait_free(cdi)
        nri_node.run(pod("good", [container("main", {cdi.resource: 1})]))
        assert nri_node.seen("good").env["CDI_CDI_0"] == "yes"
        nri_node.delete("good")


def test_a_static_pod_whose_author_chose_its_uid(nri_node: NodeUnderTest) -> None:
    rw = nri_node.kinds["rw"]
    body = marked(pod("chosen", [container("main", {rw.resource: 1})]))
    body["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    with _connection_kept(nri_node):
        with nri_node.static(body) as name:
            nri_node.wait_event(name, "remove metadata.uid from the manifest")
            assert not nri_node.starts(name)
        nri_node.wait_free(rw)


def _env(value: str) -> Answer:
    return lambda _: api_pb2.ContainerAllocateResponse(envs={"E2E_SAME": value})


@contextmanager
def _connection_kept(of: NodeUnderTest) -> Iterator[None]:
    log = of.node.folder / "logs" / "agent.log"
    before = log.read_text().count(_LOST)
    yield
    assert log.read_text().count(_LOST) == before
