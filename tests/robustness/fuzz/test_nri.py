"""Whatever a container runtime sends, a session ends by SessionEnded alone; whatever a plugin asks for, an adjustment is sane."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message as Protobuf
from hypothesis import strategies as st
from nodedevice_agent.devicemanager.container_edits import ContainerEdits, ContainerMount, DeviceFile
from nodedevice_agent.devicemanager.runtime import InjectionRefused
from nodedevice_agent.nri.adjustment import adjustment
from nodedevice_agent.nri.host_devices import HostDevice, HostDeviceStat
from nodedevice_agent.nri.mux import frames
from nodedevice_agent.nri.session import PLUGIN_SERVICE, PLUGIN_STREAM, RUNTIME_STREAM, Session, SessionEnded
from nodedevice_agent.nri.ttrpc import encode
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2
from nodedevice_api.upstream.ttrpc import ttrpc_pb2

from tests.fakes.runtime_handler import Recorder
from tests.robustness.fuzz.budget import Fuzzer
from tests.robustness.fuzz.inputs import mostly, nearly, whole_texts

POD = api_pb2.PodSandbox(id="s", name="n", uid="u", namespace="d", annotations={"a": "b"})
CONTAINER = api_pb2.Container(
    id="c", pod_sandbox_id="s", env=["A=b"], linux=api_pb2.LinuxContainer(devices=[api_pb2.LinuxDevice(path="/dev/a")])
)
CALLS: list[tuple[str, Protobuf]] = [
    ("Configure", api_pb2.ConfigureRequest(runtime_name="containerd", runtime_version="v2.4.2", NRI_version="v0.12.3")),
    ("Synchronize", api_pb2.SynchronizeRequest(pods=[POD], more=True)),
    ("Synchronize", api_pb2.SynchronizeRequest(containers=[CONTAINER])),
    ("CreateContainer", api_pb2.CreateContainerRequest(pod=POD, container=CONTAINER)),
    ("ValidateContainerAdjustment", api_pb2.ValidateContainerAdjustmentRequest(pod=POD, container=CONTAINER)),
    ("PostStartContainer", api_pb2.PostStartContainerRequest(pod=POD, container=CONTAINER)),
    ("StopContainer", api_pb2.StopContainerRequest(pod=POD, container=CONTAINER)),
    ("RemoveContainer", api_pb2.RemoveContainerRequest(pod=POD, container=CONTAINER)),
    ("RemovePodSandbox", api_pb2.RemovePodSandboxRequest(pod=POD)),
    ("StateChange", api_pb2.StateChangeEvent(event=api_pb2.REMOVE_CONTAINER, pod=POD, container=CONTAINER)),
    ("Shutdown", api_pb2.Empty()),
]


def call(number: int, method: str, request: Protobuf) -> bytes:
    envelope = ttrpc_pb2.Request(service=PLUGIN_SERVICE, method=method, payload=request.SerializeToString())
    return frames(PLUGIN_STREAM, encode(number, 1, envelope.SerializeToString()))


REGISTERED = frames(RUNTIME_STREAM, encode(1, 2, ttrpc_pb2.Response().SerializeToString()))
SINGLE = [call(1, method, request) for method, request in CALLS]
WHOLE = REGISTERED + b"".join(call(2 * n + 1, method, request) for n, (method, request) in enumerate(CALLS))


async def _session(data: bytes, socket: Path) -> None:
    """One session with a runtime that says this, listens for what comes back, and goes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        writer.write_eof()
        try:
            await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_unix_server(talk, socket)
    try:
        with pytest.raises(SessionEnded):
            await Session(Recorder(), "10", HostDeviceStat()).run(socket)
    finally:
        server.close()
        await server.wait_closed()
        socket.unlink()


def test_what_a_runtime_sends(
    fuzz: Fuzzer, runner: asyncio.Runner, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def check(data: bytes) -> None:
        caplog.clear()
        runner.run(_session(data, tmp_path / "nri.sock"))
        assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []

    fuzz(check, nearly([WHOLE, REGISTERED, *SINGLE]))


_paths = mostly(st.sampled_from(["/dev/a", "/dev/a/", "//dev/a", "/dev/b", "/", "/..", "-/dev/a"]), whole_texts)
_edits = st.builds(
    ContainerEdits,
    st.dictionaries(mostly(st.sampled_from(["A", "B"]), whole_texts), whole_texts, max_size=2),
    st.lists(st.builds(ContainerMount, _paths, _paths, st.booleans()), max_size=2).map(tuple),
    st.lists(
        st.builds(DeviceFile, _paths, _paths, mostly(st.sampled_from(["r", "rw", "rwm"]), whole_texts)), max_size=2
    ).map(tuple),
    st.dictionaries(whole_texts, whole_texts, max_size=2),
    st.lists(whole_texts, max_size=2).map(tuple),
)


def test_what_a_container_is_to_get(fuzz: Fuzzer) -> None:
    device = HostDevice("", "c", 1, 3, 0o666, 0, 0)

    def check(edits: Any) -> None:
        try:
            made = adjustment(edits, {edit.host_path: (device,) for edit in edits.devices})
        except InjectionRefused:
            return
        names = [entry.key for entry in made.env] + list(made.annotations)
        places = [mount.destination for mount in made.mounts] + [device.path for device in made.linux.devices]
        assert all(name and not name.startswith("-") for name in names)
        assert all(place.startswith("/") and len(place) > 1 for place in places)
        assert len(set(places)) == len(places)
        # nothing is lost on its way
        assert len(made.env) == len(edits.envs)
        assert {device.path for device in made.linux.devices} or not edits.devices

    fuzz(check, _edits)
