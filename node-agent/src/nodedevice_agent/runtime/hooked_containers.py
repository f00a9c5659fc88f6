"""Calls the hooks of built-in plugins when containers are created; counts, logs and notes the results."""

import logging
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace
from nodedevice_common.paced_log import PacedLog

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.runtime import InjectionRefused, RunningContainer, Sandbox
from nodedevice_agent.plugins.contract import Creation, CreationHook, Given, HookFailed, Plugin, has_part, part
from nodedevice_agent.plugins.settings import KINDS, ConfiguredPlugins
from nodedevice_agent.runtime.creation_hooks import CreationHooks, Hooked
from nodedevice_agent.runtime.kubelet_checkpoint import KubeletCheckpoint

log = logging.getLogger(__name__)

# maximum of named pods; each change of these is written to the API
_NAMED = 5
_NO_EDITS = ContainerEdits()
_FAILS = (
    "its plugin cannot decide about containers: containers with its devices, or that may request them, do not start; "
    "report it with this agent's log"
)


class HookedContainers:
    """namespace: the agent's own. on_change: called when note() may have changed."""

    def __init__(
        self, manager: DeviceManager, kubelet: KubeletCheckpoint, namespace: str, on_change: Callable[[], None]
    ) -> None:
        self._manager = manager
        self._kubelet = kubelet
        self._namespace = namespace
        self._on_change = on_change
        self._lines = PacedLog(log)
        self._failing: set[str] = set()
        self.hooks = CreationHooks(manager, self._hooked(ConfiguredPlugins()))
        # the latest exempt pods: namespace and name, by kind of plugin and UID
        self._exempt: dict[tuple[str, str], str] = {}

    def configured(self, plugins: ConfiguredPlugins) -> None:
        """Apply the node's current plugins."""
        self._failing.clear()
        self.hooks.all = [*self._hooked(plugins)]
        self._on_change()

    def _hooked(self, plugins: ConfiguredPlugins) -> Iterator[Hooked]:
        """Import hooks of plugins that are configured, or whose devices were allocated before."""
        known = {resource.presence.scope for resource in self._manager.resources.values()}
        for kind, settings in KINDS.items():
            configured = plugins.of(kind)
            scopes = {plugin.scope for plugin in configured} | {scope for scope in known if settings.is_scope(scope)}
            if scopes and has_part(kind, "creation"):
                make = partial(_hook, kind, configured, self._namespace)
                yield Hooked(kind, make, scopes.__contains__, settings, self._failed)

    def reads(self, entry: str) -> bool:
        return any(hooked.reads(entry) for hooked in self.hooks.all)

    def asks_kubelet(self, sandbox: Sandbox, container: RunningContainer) -> bool:
        """Whether edits() may depend on the kubelet's allocations, which must be read before."""
        return any(self._decided(hooked, sandbox, container, _NO_EDITS) is not None for hooked in self.hooks.all)

    def edits(
        self, sandbox: Sandbox, container: RunningContainer, given: ContainerEdits | None
    ) -> ContainerEdits | None:
        """Return the container's edits. given: its edits without hooks. Raises InjectionRefused."""
        for hooked in self.hooks.all:
            given = self._edits(hooked, sandbox, container, given)
        return given

    def _edits(
        self, hooked: Hooked, sandbox: Sandbox, container: RunningContainer, given: ContainerEdits | None
    ) -> ContainerEdits | None:
        plugins = given or _NO_EDITS
        if self._decided(hooked, sandbox, container, plugins) is None:
            return given
        uid, name, pod_name = sandbox.uid, container.name, (sandbox.namespace, sandbox.name)
        of_kubelet, unknown = self._kubelet.given(uid, name), self._kubelet.unknown_response(uid, pod_name, name)
        found = self._decided(hooked, sandbox, container, plugins, of_kubelet, unknown)
        if found is None:
            return given
        metrics.CREATION_HOOKS.labels(found.outcome).inc()
        if found.refusal:
            if given is None:
                # the caller only counts refusals of containers with devices
                metrics.CONTAINERS_REFUSED.inc()
            raise InjectionRefused(found.refusal)
        pod = "/".join(pod_name)
        log.info(found.event, extra={"pod": pod, "container": name})
        if found.envs is None:
            self._note((hooked.kind, uid), pod)
            return given
        return replace(plugins, envs={**plugins.envs, **found.envs})

    def _decided(
        self, hooked: Hooked, sandbox: Sandbox, container: RunningContainer, plugins: ContainerEdits, *of_kubelet: Any
    ) -> Creation | None:
        """Call a hook. of_kubelet: fields of Given. A result of None is final without them: they can only explain a request."""
        held = self._manager.book.of_container(sandbox.uid, container.name)
        holds = any(self.hooks.serves(hooked, a.resource_name) for a in held)
        try:
            found = hooked.for_any(sandbox, container, Given(holds, plugins, *of_kubelet))
        except HookFailed as exc:
            if holds or hooked.may_be_asked_by(sandbox, container):
                return Creation(refusal=f"container {container.name} cannot start: {exc}")
            return None
        if hooked.kind in self._failing and (holds or found is not None):
            self._failing.discard(hooked.kind)
            self._on_change()
        return found

    def _failed(self, kind: str, error: Exception) -> None:
        event = "creation hook of a built-in plugin failed; containers that may have its devices do not start"
        self._lines.log(logging.ERROR, event, kind, plugin=kind, error=f"{error!r:.500}", path=_place(error))
        if kind not in self._failing:
            self._failing.add(kind)
            self._on_change()

    def sandbox_removed(self, pod_uid: str) -> None:
        before = len(self._exempt)
        self._exempt = {key: pod for key, pod in self._exempt.items() if key[1] != pod_uid}
        if len(self._exempt) != before:
            self._on_change()

    def note(self, resource_name: str) -> str:
        """Return the note of the plugin's hook about a resource; may be empty."""
        for hooked in self.hooks.all:
            if self.hooks.serves(hooked, resource_name):
                exempt = sorted(pod for (kind, _), pod in self._exempt.items() if kind == hooked.kind)
                return _FAILS if hooked.kind in self._failing else hooked.note(exempt)
        return ""

    def _note(self, key: tuple[str, str], pod: str) -> None:
        is_new = key not in self._exempt
        self._exempt.pop(key, None)
        self._exempt[key] = pod
        if len(self._exempt) > _NAMED:
            del self._exempt[next(iter(self._exempt))]
        if is_new:
            self._on_change()


def _hook(kind: str, configured: Sequence[Plugin], namespace: str) -> CreationHook:
    made: CreationHook = part(kind, "creation").hook(configured, namespace)
    return made


def _place(error: Exception) -> str:
    """Return file and line that raised the error."""
    *_, frame = traceback.extract_tb(error.__traceback__) or [traceback.FrameSummary("", 0, "")]
    return f"{frame.filename}:{frame.lineno}"
