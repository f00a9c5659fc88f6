"""All hostile origins at once on a real node, for two minutes: containers start with their devices, and the agent stays small.

What each origin may cost by itself is in tests/robustness/memory; here a real API server, kubelet and containerd carry it.
"""

import asyncio
import itertools
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from hack.bench.operator.counts import peak_rss_mib
from tests.cluster.node.kubelet import PLUGIN_DIR as KUBELET_PLUGIN_DIR
from tests.e2e.real_node.device_plugins import call_in, event_loop
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import Json, container, pod
from tests.fakes.hostile_lists import hostile_lists
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.integration.deadlines import environment

_SECONDS: Final = 120.0
_MOST_MIB: Final = 320
_MOST_TURN_MS: Final = 50
_KUBELETS: Final = "mad.kubelet.example.com/gpu"
# of pods that the kubelet rejects and that stay; as large as etcd takes an object
_LARGE_PODS: Final = 60
_OCTETS: Final = 1_300_000
_CONFIGS: Final = 60
# containers of one pod, each with the whole of a ConfigMap of 1 MiB as its environment
_CONTAINERS: Final = 12
_KUBELETS_DEVICES: Final = 40_000
_HOLDERS: Final = 4


@pytest.fixture
def turns(nri_node: NodeUnderTest) -> Path:
    return nri_node.node.outside("/var/lib/e2e/turns")


def test_every_container_starts_with_its_device(nri_node: NodeUnderTest, turns: Path) -> None:
    variables = environment({}, Path("/var/lib/e2e/turns"))
    with ExitStack() as origins, nri_node.agent_with({}, variables):
        nri_node.wait_advertised()
        for origin in (_tenants, _writers_of_configs, _plugin_of_the_agent, _plugin_of_the_kubelet, _environments):
            origins.enter_context(origin(nri_node))
        began = time.time()
        refused = _pods_for(nri_node, _SECONDS)
        nri_node.agent.verify_alive()
        assert nri_node.agent.pid is not None
        peak_mib = peak_rss_mib(nri_node.agent.pid)
        long = _long_turns(turns, began)
    print(f"{len(refused)} pods, {sum(map(bool, refused))} refused, peak {peak_mib:.0f} MiB, longest turns {long[:5]}")
    assert [found for found in refused if found] == []
    assert peak_mib <= _MOST_MIB
    assert [turn for turn in long if turn["cpu_ms"] > _MOST_TURN_MS] == []


def _pods_for(under_test: NodeUnderTest, seconds: float) -> list[list[str]]:
    """Run pods with a device one after another for that long. Returns of each the Events that say it was refused."""
    kind = next(kind for kind in under_test.kinds.values() if not kind.cdi)
    ends_at = time.monotonic() + seconds
    found: list[list[str]] = []
    while time.monotonic() < ends_at or not found:
        name = f"good-{len(found)}"
        under_test.run(pod(name, [container("main", {kind.resource: 1})]))
        assert under_test.seen(name).env[kind.env] in kind.files
        found.append([event for event in under_test.events(name) if event.startswith("Failed")])
        under_test.delete(name, force=True)
    return found


def _long_turns(turns: Path, since: float) -> list[Json]:
    lines = [json.loads(line) for line in turns.read_text().splitlines()] if turns.exists() else []
    return sorted((line for line in lines if line["at"] > since), key=lambda line: -line["cpu_ms"])


# -- origins -----------------------------------------------------------------------------------------------------------


@contextmanager
def _tenants(under_test: NodeUnderTest) -> Iterator[None]:
    """Large pods of this node, which the kubelet rejects for their selector; they stay in the API."""
    plane, namespace = under_test.control_plane, f"{under_test.namespace}-tenant"
    plane.add_namespace(namespace)
    spec = {"nodeName": under_test.node.name, "nodeSelector": {"no": "node"}}
    large = {"name": "main", "image": "none", "args": ["x" * _OCTETS]}
    for number in range(_LARGE_PODS):
        metadata = {"name": f"large-{number}", "namespace": namespace}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, "containers": [large]}}
        plane.kubectl("create", "-f", "-", stdin=json.dumps(body))
    yield
    plane.remove_namespace(namespace)


@contextmanager
def _writers_of_configs(under_test: NodeUnderTest) -> Iterator[None]:
    """Configurations as large as they may be, for other nodes."""
    kubectl = under_test.control_plane.kubectl
    paths = [{"paths": [{"path": f"/dev/none/{'x' * 200}-{index}"}]} for index in range(60)]
    for number in range(_CONFIGS):
        generic = [{"resourceName": f"mad.example.com/c{number}-{index}", "groups": paths} for index in range(16)]
        spec = {"nodeSelector": {"no": "node"}, "plugins": {"generic": generic}}
        config = {
            "apiVersion": "nodedevice.io/v1alpha1",
            "kind": "NodeDeviceConfig",
            "metadata": {"name": f"mad-{number}"},
            "spec": spec,
        }
        kubectl("create", "-f", "-", stdin=json.dumps(config))
    yield
    kubectl("delete", "nodedeviceconfigs", *(f"mad-{number}" for number in range(_CONFIGS)))


@contextmanager
def _plugin_of_the_agent(under_test: NodeUnderTest) -> Iterator[None]:
    with hostile_lists(under_test.node.outside(under_test.plugin_dir), 20, 14_000):
        yield


@contextmanager
def _plugin_of_the_kubelet(under_test: NodeUnderTest) -> Iterator[None]:
    """A long list that changes each second, and the largest responses that a kubelet takes, which its checkpoint keeps."""
    plugin = FakePlugin(_KUBELETS, {f"d{index}": FakeDevice() for index in range(_KUBELETS_DEVICES)})
    response = api_pb2.ContainerAllocateResponse(envs={f"V{number}": "x" * 60_000 for number in range(60)})
    plugin.knobs.allocate_answer = lambda _: response
    directory = under_test.node.outside(KUBELET_PLUGIN_DIR)
    with event_loop() as loop, ExitStack() as ends:
        call_in(loop, plugin.join(directory))
        ends.callback(lambda: call_in(loop, plugin.stop()))
        changes = asyncio.run_coroutine_threadsafe(_change(plugin), loop)
        ends.callback(changes.cancel)
        under_test.wait_allocatable(_KUBELETS, _KUBELETS_DEVICES)
        for number in range(_HOLDERS):
            # none of them starts, as no process takes so many variables; the kubelet keeps what it allocated
            under_test.create(pod(f"holder-{number}", [container("main", {_KUBELETS: 1000})]))
        yield


async def _change(plugin: FakePlugin) -> None:
    for number in itertools.count():
        await plugin.set_health("d0", bool(number % 2))
        await asyncio.sleep(1)


@contextmanager
def _environments(under_test: NodeUnderTest) -> Iterator[None]:
    """One small pod whose containers run with an environment of 1 MiB each."""
    data = {f"V{number}": "x" * 100_000 for number in range(10)}
    metadata = {"name": "large", "namespace": under_test.namespace}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    under_test.control_plane.kubectl("create", "-f", "-", stdin=json.dumps(config))
    source = [{"configMapRef": {"name": "large"}}]
    under_test.create(pod("environments", [container(f"c{number}", envFrom=source) for number in range(_CONTAINERS)]))
    yield
