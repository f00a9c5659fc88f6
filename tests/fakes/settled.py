"""A device manager that settles after each event, as its host has it, and returns the effects of the event."""

from collections.abc import Callable
from inspect import signature
from types import SimpleNamespace
from typing import Any, Final

from nodedevice_agent.devicemanager.effects import Effect, Publish
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.kubelet.served import KubeletResources

_PLUGINS: Final = (
    "add configured connected cordoned cordons_outdated disconnected displaced listed ranked recovered tick"
)
_PODS: Final = "gone kubelet_allocated pod_gone pod_seen pods_synced possible_holder_ended seen synced"
_CALLS: Final = "allocate_failed allocated pre_start_failed pre_started preferred"
_RUNTIME: Final = "containers_changed containers_ended static_pod_removed static_pod_shown static_pods_listed"
_KUBELET: Final = "capacity_is listing_made read"
_EVENTS: Final = frozenset(" ".join((_PLUGINS, _PODS, _CALLS, _RUNTIME, _KUBELET)).split())
_PARTS: Final = ("table", "pod_events", "releasing", "attribution")


class Settled:
    """Events take the time as their last argument, also those that do not need it. Everything else is the manager's own."""

    def __init__(self, subject: Any, settle: Callable[[float], list[Effect]]) -> None:
        self.__dict__.update(subject=subject, settle=settle)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.subject, name, value)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.subject, name)
        if name in _PARTS:
            return Settled(found, self.settle)
        return self._event(found) if name in _EVENTS else found

    def _event(self, handle: Callable[..., object]) -> Callable[..., list[Effect]]:
        def happen(*args: Any, **options: Any) -> list[Effect]:
            now = next((each for each in reversed(args) if isinstance(each, float)), 0.0)
            handle(*(args if "now" in signature(handle).parameters else [a for a in args if a is not now]), **options)
            effects: list[Effect] = self.settle(now)
            return effects

        return happen


def attributed(now: float, checkpoint: Checkpoint | None = None, **options: Any) -> DeviceManager:
    """The device manager of a node whose kubelet allocates everything."""
    return DeviceManager(now, checkpoint, waits_for_cordons=True, is_attributed=lambda name: True, **options)


def attributing(now: float = 0.0, checkpoint: Checkpoint | None = None, **options: Any) -> Any:
    """The same, settling by itself."""
    manager = attributed(now, checkpoint, **options)
    return Settled(manager, manager.settle)


def observing() -> Any:
    """What the kubelet serves."""
    found = KubeletResources(0.0)
    return Settled(found, lambda now: [Publish(name) for name in found.settle(now)])


def host_of(manager: Any) -> Any:
    """The host of a device manager that settles by itself: nothing is carried out."""
    return SimpleNamespace(manager=manager, settle=lambda: manager.settle(0.0), now=lambda: 0.0)
