"""Whatever an API server answers: ApiError or a value from every call, and who reads NodeDevices and pods goes on.

The connections are exchanged for a server that answers as scripted, so that all of the agent's own reading is under test.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.informer import Watches, WatchLoop
from nodedevice_agent.kube.nodedevice import NodeDeviceSync
from nodedevice_agent.kube.objects import NodeDeviceObject
from nodedevice_agent.kube.pod_objects import PodObject, from_api
from nodedevice_agent.kube.pods import recover_checkpoint
from nodedevice_agent.kube.publisher import Publisher
from nodedevice_agent.kube.served_resources import StatusMaker
from nodedevice_api.nodedevice import NodeDeviceStatus
from nodedevice_common.api_exchange import Request
from nodedevice_kube.api_errors import ApiError

from tests.fakes.api_answers import Answer, Server, query_of
from tests.fakes.api_client import client_of
from tests.robustness.fuzz.budget import Fuzzer
from tests.robustness.fuzz.inputs import as_json, mostly, nearly, numbers, shaped, some, whole_texts
from tests.robustness.fuzz.published import status_of

GPU = "example.com/gpu"


class Answers(Server):
    """`body` for every request; `lines` for the first watch, and the next ones are answered that their version is gone.

    lines None: a watch stays open, and nothing comes.
    """

    def __init__(self) -> None:
        self.patched = asyncio.Event()
        self.respond(b"{}")

    def respond(
        self, body: bytes, lines: bytes | None = None, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        self.body, self.lines, self.status = body, lines, status
        self.headers = headers or {}
        self.is_watched = False
        self.patched.clear()

    def answer(self, request: Request) -> Answer:
        if request.method == "PATCH":
            self.patched.set()
        if "watch" not in query_of(request):
            return Answer(self.body, status=self.status, headers=self.headers)
        if self.is_watched:
            return Answer(status=410)
        self.is_watched = True
        return Answer(self.lines, status=self.status, headers=self.headers)


async def list_and_watch(cluster: KubeClient, kind: type[Any], handler: Any) -> None:
    """One list and one watch."""
    await WatchLoop(Watches(cluster), kind, {}, handler).list_and_watch()


class IgnoredEvents:
    """An EventHandler."""

    known_version = 0

    def synced(self, objects: list[Any], version: int) -> None: ...

    def updated(self, found: Any) -> None: ...

    def deleted(self, found: Any) -> None: ...


class PodsOf:
    """An EventHandler that feeds this manager."""

    known_version = 0

    def __init__(self, manager: DeviceManager) -> None:
        self._manager = manager

    def synced(self, objects: list[PodObject], version: int) -> None:
        self._manager.pod_events.synced([from_api(pod) for pod in objects], 1.0)

    def updated(self, found: PodObject) -> None:
        pod = from_api(found)
        self._manager.pod_events.seen(pod, 1.0)
        assert sum(need.count for need in pod.device_requests) < 2**70

    def deleted(self, found: PodObject) -> None:
        self.updated(found)


class StatusOf(Publisher):
    """Publishes what this manager would publish."""

    def __init__(self, cluster: KubeClient, manager: DeviceManager) -> None:
        super().__init__(cluster, "node-a", "none")
        self._manager = manager

    async def saved(self) -> None:
        """Nothing is on disk."""

    def status_maker(self, resource_name: str, observed: NodeDeviceStatus, wall_time: str) -> StatusMaker:
        return StatusMaker(lambda: status_of(self._manager, resource_name, observed), False)

    def cordoned(self, resource_name: str, uid: str, in_spec: Mapping[str, Cordon]) -> None:
        self._manager.table.cordoned(resource_name, uid, in_spec)
        self._manager.settle(1.0)


_uids = mostly(st.sampled_from(["uid-1", "uid-2", ""]), whole_texts)
_quantities = mostly(
    st.sampled_from(["1", 1, "2", "1k", "0", "1e3", "9" * 30, "1e999999999", "nan", "-1"]), whole_texts
)
_container = st.fixed_dictionaries(
    {"name": mostly(st.sampled_from(["main", "init"]), whole_texts)},
    optional={
        "resources": st.fixed_dictionaries(
            {"limits": st.dictionaries(mostly(st.just(GPU), whole_texts), _quantities, max_size=2)}
        ),
        "restartPolicy": st.sampled_from(["Always", "Never"]),
    },
)
_pod = shaped(
    {
        "metadata": shaped({"name": whole_texts, "namespace": whole_texts, "uid": _uids}),
        "spec": shaped({"containers": some(_container), "initContainers": some(_container)}),
        "status": shaped({"phase": st.sampled_from(["Pending", "Running", "Failed"])}),
    }
)
_device = shaped(
    {
        "id": mostly(st.sampled_from(["a", "b", "c"]), whole_texts),
        "health": st.sampled_from(["Healthy", "Unhealthy"]),
        "presence": st.just("Present"),
        "since": whole_texts,
        "numaNodes": st.lists(st.integers(-1, 70), max_size=2),
        "cordonedSince": whole_texts,
    }
)
_allocation = shaped(
    {
        "podUID": _uids,
        "namespace": whole_texts,
        "name": whole_texts,
        "container": mostly(st.just("main"), whole_texts),
        "deviceIDs": some(mostly(st.sampled_from(["a", "b", "c"]), whole_texts)),
        "deviceIDsOmitted": numbers,
        "since": whole_texts,
    }
)
_condition = shaped(
    {"type": st.sampled_from(["Registered", "Ready"]), "status": st.just("True"), "lastTransitionTime": whole_texts}
)
_node_device = shaped(
    {
        "metadata": shaped({"name": whole_texts, "resourceVersion": mostly(st.integers(0, 99).map(str), whole_texts)}),
        "spec": shaped(
            {
                "nodeName": whole_texts,
                "resourceName": mostly(st.just(GPU), whole_texts),
                "cordonedDevices": some(shaped({"id": whole_texts})),
            }
        ),
        "status": shaped(
            {
                "endpoint": shaped({"state": whole_texts, "since": whole_texts}),
                "devices": some(_device),
                "allocations": some(_allocation),
                "allocationsOmitted": numbers,
                "waiting": some(_allocation),
                "conditions": some(_condition),
            }
        ),
    }
)


def manager_with_devices(**options: Any) -> DeviceManager:
    manager = DeviceManager(0.0, **options)
    manager.connected(GPU, 1, PluginOptions(), 0.0)
    manager.listed(GPU, 1, accept([Device("a"), Device("b")]), 0.0)
    return manager


def test_any_answer(fuzz: Fuzzer, runner: asyncio.Runner) -> None:
    """Any bytes to any request."""
    answers = Answers()
    cluster = client_of(answers)

    async def one(status: int, headers: dict[str, str], body: bytes, lines: bytes) -> None:
        for call in (
            lambda: cluster.node_uid("node-a"),
            lambda: cluster.node_devices_of("node-a"),
            lambda: cluster.apply_status("x", {}),
            lambda: cluster.create_node_device(("node-a", "uid"), GPU),
            lambda: cluster.get_lease("ns", "node-a"),
            lambda: list_and_watch(cluster, PodObject, IgnoredEvents()),
            lambda: list_and_watch(cluster, NodeDeviceObject, IgnoredEvents()),
        ):
            answers.respond(body, lines, status, headers)
            with contextlib.suppress(ApiError):
                await call()

    seeds = [
        b'{"items":[{"metadata":{"name":"x","resourceVersion":"1"}}],"metadata":{"resourceVersion":"2"}}',
        b'{"metadata":{}}',
        b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"NotFound","code":404}',
    ]
    watches = [
        b'{"type":"ADDED","object":{"metadata":{"name":"x","resourceVersion":"3"}}}\n',
        b'{"type":"BOOKMARK","object":{}}\n',
    ]
    headers = st.sampled_from([{}, {"retry-after": "7"}, {"retry-after": "soon"}])
    inputs = st.tuples(
        st.sampled_from([200, 200, 200, 404, 409, 410, 429, 500, 302]), headers, nearly(seeds), nearly(watches)
    )
    fuzz(lambda value: runner.run(one(*value)), inputs)


def test_any_pods(fuzz: Fuzzer, runner: asyncio.Runner) -> None:
    answers = Answers()
    cluster = client_of(answers)

    async def one(pods: Any) -> None:
        manager = manager_with_devices()
        lines = b"".join(as_json({"type": "MODIFIED", "object": pod}) + b"\n" for pod in pods)
        answers.respond(as_json({"items": pods, "metadata": {"resourceVersion": "1"}}), lines)
        with contextlib.suppress(ApiError):
            await list_and_watch(cluster, PodObject, PodsOf(manager))
        status_of(manager, GPU)

    fuzz(lambda pods: runner.run(one(pods)), st.lists(_pod, max_size=4))


def test_any_node_devices_after_a_lost_checkpoint(fuzz: Fuzzer, runner: asyncio.Runner) -> None:
    answers = Answers()
    cluster = client_of(answers)

    async def one(objects: list[Any]) -> None:
        answers.respond(as_json({"items": objects}))
        try:
            await cluster.node_devices_of("node-a")
        except ApiError:
            # it would be asked for again until the API server has an answer that can be read
            return
        manager = manager_with_devices(is_recovering=True)
        manager.recovered(await recover_checkpoint(cluster, "node-a"), 1.0)
        for resource_name in manager.resources:
            status_of(manager, resource_name)

    fuzz(lambda objects: runner.run(one(objects)), st.lists(_node_device, max_size=3))


def test_any_observed_node_device(fuzz: Fuzzer, runner: asyncio.Runner) -> None:
    """Somebody else wrote it: the agent writes over it, whatever it was."""
    answers = Answers()
    cluster = client_of(answers)

    async def one(found: Any) -> None:
        answers.respond(as_json({**found, "items": [found]}))
        try:
            await cluster.node_devices_of("node-a")
        except ApiError:
            return
        manager = manager_with_devices(waits_for_cordons=True)
        node_device = NodeDeviceSync(StatusOf(cluster, manager), GPU)
        running = asyncio.create_task(node_device.run())
        patched = asyncio.create_task(answers.patched.wait())
        await asyncio.wait([running, patched], return_when=asyncio.FIRST_COMPLETED)
        ended = running.done()
        running.cancel()
        patched.cancel()
        await asyncio.gather(running, patched, return_exceptions=not ended)

    fuzz(lambda found: runner.run(one(found)), _node_device.filter(lambda found: isinstance(found, dict)))
