"""A plugin, a tenant, a configuration and a token gone mad, beside an API server that answers writes in 1 to 3 s; all at once.

No container is refused for it, none waits for longer than a runtime does, and no capacity is below what is in use.
CHAOS_MAD_SECONDS: how long (default 15; `make chaos`: 120).
"""

import asyncio
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest
import yaml
from nodedevice_agent.nri.ttrpc import CallFailed
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from hack.bench.operator.counts import peak_rss_mib
from tests.cluster.accounts import client_of_pod
from tests.cluster.api import Node, Pod
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import NODE_A, NODE_B, Program, Stack
from tests.e2e.real_node.device_plugins import call_in, event_loop
from tests.fakes.fault_proxy import FaultProxy
from tests.fakes.hostile_lists import hostile_lists
from tests.fakes.nri_runtime import FakeRuntime, PluginConnection
from tests.robustness.chaos import mad
from tests.robustness.chaos.siege import PLUGINS, PODS, RESOURCE, are_served, make_pods, status_of, through_proxies
from tests.robustness.chaos.witness import Witness

SECONDS = float(os.environ.get("CHAOS_MAD_SECONDS", "15"))
# of the mad plugin: names, and devices of each
_NAMES, _LISTED = 20, 14_000
_SLOW = (1.0, 2.9, 2.0, 3.0, 1.5, 2.4)
# a runtime waits for a plugin's answer for so long; then it creates containers without it, or none
_RUNTIME_SECONDS = 2.0
_PAUSE_SECONDS = 0.05
_CALM_SECONDS = 180.0
_OPERATOR_MIB = 256


@dataclass
class Containers:
    """Of one node, created one after the other: plain ones, and in turn those of pods that hold devices.

    held: by pod UID, what its container got at first.
    """

    connection: PluginConnection
    held: dict[str, bytes] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    async def work(self) -> None:
        """For ever."""
        for number in itertools.count():
            for uid in (f"plain-{number}", *self.held):
                await self._create(uid, f"{uid}-{number}")
                await asyncio.sleep(_PAUSE_SECONDS)

    async def first(self, uid: str) -> bytes:
        """What the container of a pod that holds devices gets."""
        pod, container = _of(uid, f"{uid}-first")
        return _text(await self.connection.create_container(pod, container))

    async def _create(self, uid: str, identity: str) -> None:
        pod, container = _of(uid, identity)
        began = time.monotonic()
        try:
            given = _text(await self.connection.create_container(pod, container))
            reason = await self.connection.validate(pod, container)
        except CallFailed as exc:
            self.refused.append(f"{uid}: {exc}")
            return
        self.seconds.append(time.monotonic() - began)
        if reason or given != self.held.get(uid, given):
            self.refused.append(f"{uid}: {reason or given!r}")
        await self.connection.container_event("RemoveContainer", pod, container)


def _of(uid: str, identity: str) -> tuple[api_pb2.PodSandbox, api_pb2.Container]:
    pod = api_pb2.PodSandbox(id=f"s-{uid}", name=uid, namespace="chaos", uid=uid)
    return pod, api_pb2.Container(id=identity, pod_sandbox_id=pod.id, name="main", state=api_pb2.CONTAINER_CREATED)


def _text(adjustment: api_pb2.ContainerAdjustment) -> bytes:
    return bytes(adjustment.SerializeToString(deterministic=True))


class Site:
    """Two nodes, of which the first has a runtime that asks its agent, and proxies between all programs and the API server."""

    def __init__(self, stack: Stack, proxies: dict[str, FaultProxy], containers: Containers) -> None:
        assert isinstance(stack.control_plane, ControlPlane)
        self.stack = stack
        self.cluster = stack.control_plane
        self.proxies = proxies
        self.containers = containers
        self.pids = {program.process.name: program.process.pid for program in (stack.operator, *stack.agents.values())}

    @classmethod
    def start(cls, folder: Path, opened: ExitStack) -> Self:
        stack = opened.enter_context(Stack.start(folder, plugins=PLUGINS))
        loop = opened.enter_context(event_loop())
        agent = stack.agents[NODE_A]
        agent.process.kill()
        _with_runtime(agent)
        runtime = FakeRuntime(agent.folder / "nri.sock")
        call_in(loop, runtime.__aenter__())
        opened.callback(lambda: call_in(loop, runtime.__aexit__()))
        proxies = through_proxies(stack, opened)
        containers = Containers(call_in(loop, runtime.plugin()))
        make_pods(stack.control_plane, NODE_A)
        stack.wait_for("pods hold their devices", lambda: status_of(stack.control_plane, NODE_A)["allocated"] == PODS)
        for made in stack.control_plane.client.list(Pod, namespace="chaos"):
            uid = str(made.metadata.uid)
            containers.held[uid] = call_in(loop, containers.first(uid))
        assert len(set(containers.held.values())) == PODS, "each has a device of its own"
        work = asyncio.run_coroutine_threadsafe(containers.work(), loop)
        opened.callback(work.cancel)
        return cls(stack, proxies, containers)

    def slow_down(self) -> None:
        """From now on the API server takes seconds to answer writes."""
        for proxy in self.proxies.values():
            proxy.slow_writes = {"": itertools.cycle(_SLOW)}

    def speed_up(self) -> None:
        for proxy in self.proxies.values():
            proxy.slow_writes = {}

    def verify_alive(self) -> None:
        for program in (self.stack.operator, *self.stack.agents.values()):
            program.process.verify_alive()
            assert program.process.pid == self.pids[program.process.name]


@pytest.fixture
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="nd-mad-") as folder, ExitStack() as opened:
        yield Site.start(Path(folder), opened)


def test_all_gone_mad_at_once_cost_no_container_and_no_capacity(site: Site) -> None:
    cluster, containers = site.cluster, site.containers
    node: Any = cluster.client.get(Node, NODE_B)
    with (
        Witness(cluster.admin_kubeconfig, RESOURCE, {NODE_A: PODS, NODE_B: 0}) as witness,
        client_of_pod(cluster, SYSTEM_NAMESPACE, "nodedevice-agent", NODE_B) as token,
    ):
        site.slow_down()
        parties = [
            mad.token(token, NODE_B, str(node.metadata.uid), NODE_A),
            mad.tenant(cluster, NODE_A, RESOURCE),
            mad.configuration(cluster.client),
        ]
        before = len(containers.seconds)
        with ExitStack() as opened:
            opened.enter_context(hostile_lists(site.stack.agents[NODE_A].plugin_dir, _NAMES, _LISTED))
            for party in parties:
                opened.enter_context(party)
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                site.verify_alive()
                time.sleep(1.0)
        seconds = containers.seconds[before:]
        site.speed_up()
        began = time.monotonic()
        cluster.kubectl("delete", "nodedeviceconfig", "mad", "--wait=false", check=False)
        site.stack.wait_for("both nodes are right", lambda: are_served(cluster), _CALM_SECONDS)
        print("", *parties, sep="\n")
        print(f"{len(seconds)} containers: p50 {1000 * statistics.median(seconds):.0f} ms, most {max(seconds):.2f} s")
        print(f"right {time.monotonic() - began:.1f} s after the end; {witness.seen} Nodes seen")
        most = {name: f"{peak_rss_mib(pid):.0f} MiB" for name, pid in site.pids.items() if pid is not None}
        print(f"memory at most: {most}")
        assert not witness.violations
        assert not containers.refused, containers.refused[:5]
        assert all(party.done for party in parties)
        assert max(seconds) < _RUNTIME_SECONDS
        assert site.stack.operator.process.pid is not None
        assert peak_rss_mib(site.stack.operator.process.pid) < _OPERATOR_MIB


def _with_runtime(agent: Program) -> None:
    """An agent whose devices a runtime injects, from its next start on."""
    path = agent.folder / "agent.yaml"
    settings = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**settings, "runtime": "nri", "advertiseWithoutInjection": False}))
