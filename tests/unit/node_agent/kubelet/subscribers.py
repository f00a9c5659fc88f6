"""Every subscriber that the agent has, and what shows all that it knows. pods: those of the reader, to which each adds its own."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, cast

from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.dra.holders import Holders
from nodedevice_agent.kubelet.attribution_feed import AttributionFeed
from nodedevice_agent.kubelet.observer import Observer
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.kubelet.readings import Subscriber
from nodedevice_agent.kubelet.served import KubeletResources
from nodedevice_agent.runtime.kubelet_checkpoint import KubeletCheckpoint
from nodedevice_agent.runtime.kubelet_takeover import KubeletTakeover

from tests.fakes.settled import attributing, host_of
from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario
from tests.unit.node_agent.devicemanager.scenario import GPU, init, pod
from tests.unit.node_agent.dra import claimed


def observer(reader: KubeletReader, pods: dict[str, Pod]) -> tuple[Subscriber, Callable[[], object]]:
    async def capacity() -> dict[str, int]:
        return {GPU: 3}

    served = KubeletResources(0.0)
    served.pods_synced([pod("one", gpu=1), pod("two", init("i0"))], 0.0)
    served.settle(0.0)
    pods.update(served.pods)

    def known() -> object:
        devices = served.snapshot(GPU).devices if GPU in served.resources else ()
        held = {a.pod_uid: a.device_ids for a in served.manager.book}
        return held, served.has_healthy(GPU), [(d.id, d.reason, d.numa_nodes) for d in devices]

    return Observer(reader, served, lambda _: None, capacity), known


def mirror_feed(reader: KubeletReader, pods: dict[str, Pod]) -> tuple[Subscriber, Callable[[], object]]:
    mirror = attributing(0.0)
    mirror.connected(GPU, 1, PluginOptions(), 0.0)
    mirror.listed(GPU, 1, accept(Device(name) for name in "abc"), 0.0)
    mirror.pod_events.synced([pod("one", gpu=1), pod("two", init("i0"))], 0.0)
    pods.update(mirror.pods)
    feed = AttributionFeed(reader.directory, cast(PluginHost, host_of(mirror)), lambda: None)
    return feed, lambda: {a.pod_uid: a.device_ids for a in mirror.book}


def kubelet_checkpoint(reader: KubeletReader, pods: dict[str, Pod]) -> tuple[Subscriber, Callable[[], object]]:
    found = KubeletCheckpoint(reader)
    return found, lambda: (GPU in found, *(found.requests_met(name, ("default", name)) for name in ("one", "two")))


def kubelet_takeover(reader: KubeletReader, pods: dict[str, Pod]) -> tuple[Subscriber, Callable[[], object]]:
    found = KubeletTakeover(RuntimeScenario.with_plugin(1).manager, reader.directory.pod_resources)
    return found, lambda: found.pace.list_seconds


def holders(reader: KubeletReader, pods: dict[str, Pod]) -> tuple[Subscriber, Callable[[], object]]:
    # the agent may not read claims
    unread: Any = SimpleNamespace(wanted=lambda claims: None, of=lambda *key: None, is_awaited=lambda *key: False)
    found = Holders(unread, reader.wake)
    found.pods_synced([claimed.pod("one", "claim")])
    return found, lambda: (found.is_known, found.of(claimed.KEY))


# all that the agent has, by the name of their class
SUBSCRIBERS: Final[dict[str, Callable[[KubeletReader, dict[str, Pod]], tuple[Subscriber, Callable[[], object]]]]] = {
    "Holders": holders,
    "KubeletCheckpoint": kubelet_checkpoint,
    "KubeletTakeover": kubelet_takeover,
    "AttributionFeed": mirror_feed,
    "Observer": observer,
}
# A container that may need a device of the kubelet's waits for a checkpoint that can be used; nothing is freed by that.
HOLDS_BACK: Final = {"KubeletCheckpoint"}
