"""Device plugins of others, unmodified, with a real agent process on the real control plane, through every restart.

Neither of them can change a device's health while it lives; what a plugin's end does to health is here.
"""

import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.fakes.third_party import rust_plugin, sample_plugin
from tests.fakes.third_party.mount_namespace import inside, unshare
from tests.integration.deviceplugin.third_party import Answer, PluginNode, ThirdParty, endpoint, held, plugin_node

# behind links: in another namespace an absolute one would be followed in ours
CDI_FILE = Path("/var/run").resolve() / "cdi/example.com.json"

pytestmark = [
    pytest.mark.cluster,
    # these plugins know one directory, the kubelet's, which is ours only in a mount namespace
    pytest.mark.skipif(not unshare(), reason="needs a mount namespace: be root, or allow user namespaces"),
]


def _sample_answer(device_id: str) -> Answer:
    path = f"/tmp/{device_id}"
    return Answer(mounts=[api_pb2.Mount(container_path=path, host_path=path)])


def _sample_cdi_answer(device_id: str) -> Answer:
    answer = _sample_answer(device_id)
    answer.cdi_devices.add(name=f"{sample_plugin.RESOURCE}=CDI-{device_id}")
    return answer


def _rust_answer(device_id: str) -> Answer:
    path = f"/dev/{device_id}"
    device = api_pb2.DeviceSpec(container_path=path, host_path=path, permissions="rw")
    return Answer(envs={rust_plugin.DEVICES_VARIABLE: device_id}, devices=[device])


SAMPLE = ThirdParty(
    "sample-device-plugin",
    sample_plugin.RESOURCE,
    sample_plugin.DEVICES,
    sample_plugin.command,
    _sample_answer,
    registered="Device Plugin registered with the Kubelet",
)
SAMPLE_WITH_CDI = replace(
    SAMPLE,
    name="sample-device-plugin with CDI",
    command=partial(sample_plugin.command, environment={"CDI_ENABLED": "1"}),
    answer=_sample_cdi_answer,
)
RUST = ThirdParty(
    "rust-device-plugin",
    rust_plugin.RESOURCE,
    rust_plugin.DEVICES,
    rust_plugin.command,
    _rust_answer,
    registered="registered with kubelet",
    options={"preStartRequired": True, "getPreferredAllocationAvailable": True},
)
# a run of tests that somebody waits for does not build it
_BUILDS = os.environ.get("THIRD_PARTY") == "build"
_RUNS_RUST = [
    pytest.mark.skipif(
        not (rust_plugin.is_built() or _BUILDS),
        reason="the plugin in Rust is not built: set THIRD_PARTY=build, which takes two minutes, once",
    ),
    pytest.mark.skipif(
        not (rust_plugin.is_built() or rust_plugin.cargo()),
        reason="needs a recent Cargo to build a plugin in Rust: install Rust",
    ),
]
_AS_SAMPLE = pytest.param(SAMPLE, id="sample")
_AS_SAMPLE_WITH_CDI = pytest.param(SAMPLE_WITH_CDI, id="sample-cdi")
_AS_RUST = pytest.param(RUST, id="rust", marks=_RUNS_RUST)

each = pytest.mark.parametrize("node", [_AS_SAMPLE, _AS_RUST], indirect=True)


@pytest.fixture(scope="session")
def rust_program(progress: Callable[[str], None]) -> Path:
    """The plugin in Rust; built where it is not yet, with a line about it now and then: a silent test run would look hung."""
    return rust_plugin.program(progress)


@pytest.fixture
def node(request: pytest.FixtureRequest, installed: ControlPlane) -> Iterator[PluginNode]:
    """A node with the plugin that the test's parameter names; all of it ends with the test."""
    of: ThirdParty = request.param
    if of is RUST:
        request.getfixturevalue("rust_program")
    # not pytest's: a socket's path has at most 107 bytes
    folder = Path(tempfile.mkdtemp(prefix="nd-3p-"))
    try:
        with plugin_node(installed, f"third-party-{uuid.uuid4().hex[:8]}", of, folder) as running:
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answers(node: PluginNode) -> dict[str, Answer]:
    """What the plugin answered, from the checkpoint, by device ID."""
    return {entry.device_ids[0]: Answer.FromString(entry.response or b"") for entry in node.checkpoint()}


def _expected(node: PluginNode, *device_ids: str) -> dict[str, Answer]:
    return {device_id: node.of.answer(device_id) for device_id in device_ids}


@pytest.mark.parametrize("node", [_AS_SAMPLE, _AS_SAMPLE_WITH_CDI, _AS_RUST], indirect=True)
def test_registers_lists_and_allocates(node: PluginNode) -> None:
    status = node.wait_running()
    assert tuple(device["id"] for device in status["devices"]) == node.of.devices
    assert node.of.options.items() <= status["endpoint"].items()
    first, second = node.run_pod("first"), node.run_pod("second")
    assert sorted((first, second)) == sorted(node.of.devices)
    assert _answers(node) == _expected(node, first, second)
    node.remove_pod("first")
    assert node.run_pod("third") == first
    assert _answers(node) == _expected(node, first, second)


@pytest.mark.kubelet("scenario 84")
@pytest.mark.parametrize("node", [_AS_SAMPLE_WITH_CDI], indirect=True)
def test_cdi_devices_are_those_in_the_plugins_own_file(node: PluginNode) -> None:
    node.wait_running()
    device_id = node.run_pod("first")
    assert node.plugin.pid is not None
    written = json.loads(inside(node.plugin.pid, CDI_FILE).read_text())
    in_file = {f"{written['kind']}={device['name']}" for device in written["devices"]}
    assert {device.name for device in _answers(node)[device_id].cdi_devices} < in_file
    assert not CDI_FILE.exists(), "the plugin wrote on this machine instead of in its mount namespace"


@pytest.mark.kubelet("scenario 89")
@each
def test_the_plugin_is_killed_and_started_again(node: PluginNode) -> None:
    node.wait_running()
    first = node.run_pod("first")
    (before,) = node.checkpoint()
    node.plugin.kill()
    stopped = node.wait_until(lambda now: endpoint(now) == "Stopped" and now["healthy"] == 0, "plugin is missed")
    assert held(stopped) == {"first": first}
    assert (stopped["total"], stopped["available"]) == (2, 0)
    node.plugin.start()
    assert held(node.wait_running()) == {"first": first}
    assert node.checkpoint() == (before,)
    second = node.run_pod("second")
    assert _answers(node) == _expected(node, first, second)


@pytest.mark.kubelet("scenario 86")
@each
def test_the_agent_is_killed_and_started_again(node: PluginNode) -> None:
    """First it dials the plugin on its own; then the plugin, each by its own way to notice, registers with it again."""
    node.wait_running()
    first = node.run_pod("first")
    (before,) = node.checkpoint()
    node.agent.process.kill()
    node.agent.start()
    second = node.run_pod("second")
    assert before in node.checkpoint()
    assert _answers(node) == _expected(node, first, second)
    node.wait_registered(2)
    node.remove_pod("second")
    assert node.run_pod("third") == second
    assert held(node.wait_running()) == {"first": first, "third": second}
    assert before in node.checkpoint()
    # one that registers whenever a stream ends must not be driven to it by our hanging up on the older one
    assert node.plugin.log.read_text().count(node.of.registered) < 10


@pytest.mark.kubelet("scenario 90")
@each
def test_both_are_killed_and_started_again(node: PluginNode) -> None:
    """As after a power failure: no process listens, and old sockets are left."""
    node.wait_running()
    first = node.run_pod("first")
    (before,) = node.checkpoint()
    node.plugin.kill()
    node.agent.process.kill()
    node.agent.start()
    node.plugin.start()
    node.wait_registered(2)
    assert held(node.wait_running()) == {"first": first}
    second = node.run_pod("second")
    assert before in node.checkpoint()
    assert _answers(node) == _expected(node, first, second)
