"""A scenario with a container runtime: its requests and events, one a line."""

from typing import Any, Self

from nodedevice_agent.devicemanager.effects import CallPreStart, Effect
from nodedevice_agent.devicemanager.runtime import ContainerState, RunningContainer, Sandbox, shown_settings
from nodedevice_agent.devicemanager.snapshot import Snapshot, snapshot
from nodedevice_agent.plugins.nvml.creation import GpuCreation
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.runtime.container_events import ContainerEvents
from nodedevice_agent.runtime.creation_hooks import CreationHooks, Hooked
from nodedevice_agent.runtime.injection import Decision, Grant, Injection, Refusal
from nodedevice_api.names import CONTAINER_DEVICES_ANNOTATION, REQUIRED_PLUGINS_ANNOTATION

from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario

HELD = {REQUIRED_PLUGINS_ANNOTATION: "[ nodedevice ]"}


def sandbox(uid: str, held: bool = False, number: int = 1) -> Sandbox:
    return Sandbox(f"sandbox-{uid}-{number}", uid, "default", uid, HELD if held else {})


def container(
    uid: str, name: str = "main", number: int = 1, state: ContainerState = ContainerState.RUNNING, **shown: Any
) -> RunningContainer:
    return RunningContainer(f"{uid}-{name}-{number}", f"sandbox-{uid}-1", name, state, **shown)


def shows(word: str) -> dict[str, Any]:
    """What the runtime reports about a container with the edits of a plugin's response."""
    return {"shown": shown_settings(("PATH=/bin", f"ANSWER={word}"), (f"/dev/{word}",))}


class RuntimeScenario(Scenario):
    """kubelets: names of the kubelet's own device manager."""

    def __init__(self, checkpoint: Any = None, kubelets: frozenset[str] = frozenset(), **options: Any) -> None:
        super().__init__(checkpoint, waits_for_runtime=True, **options)
        hooks = CreationHooks(
            self.manager,
            [Hooked("nvml", lambda: GpuCreation(None), NvmlSettings.is_scope, NvmlSettings, lambda *_: None)],
        )
        self.injection = Injection(self.manager, hooks, kubelets)
        self.runtime = ContainerEvents(self.manager)

    @classmethod
    def synced(cls, *args: Any, **options: Any) -> Self:
        """With a runtime that has no container."""
        scenario = cls(*args, **options)
        scenario.sync()
        return scenario

    def settled(self) -> list[Effect]:
        """What follows from an event of the runtime."""
        effects = self.manager.settle(self.now)
        self.effects += effects
        return effects

    def ask(self, uid: str, name: str = "main", held: bool = False) -> Decision:
        return self.injection.decide(sandbox(uid, held), name)

    def refusal(self, uid: str, name: str = "main", held: bool = False) -> Refusal:
        decision = self.ask(uid, name, held)
        assert isinstance(decision, Refusal), decision
        return decision

    def create(self, uid: str, name: str = "main", number: int = 1) -> RunningContainer:
        """Create a container with its devices; returns it as the runtime reports it from then on."""
        self.runtime.creating(uid, name)
        self.settled()
        decision = self.ask(uid, name)
        assert isinstance(decision, Grant), decision
        made = container(uid, name, number)
        self.runtime.created(sandbox(uid), made, decision)
        self.settled()
        mark = decision.edits.annotations[CONTAINER_DEVICES_ANNOTATION]
        return container(uid, name, number, annotations={CONTAINER_DEVICES_ANNOTATION: mark})

    def start(self, made: RunningContainer, uid: str) -> list[Effect]:
        self.runtime.started(sandbox(uid), made)
        return self.settled()

    def end(self, made: RunningContainer, uid: str) -> list[Effect]:
        self.runtime.ended(uid, made.id)
        return self.settled()

    def sync(self, *running: tuple[str, RunningContainer]) -> list[Effect]:
        sandboxes = [sandbox(uid) for uid in dict.fromkeys(uid for uid, _ in running)]
        self.runtime.synchronized(sandboxes, [made for _, made in running], self.now)
        return self.settled()

    def rebooted(self, **options: Any) -> "RuntimeScenario":
        return RuntimeScenario(self.manager.checkpoint(), **options)

    def prepare(self, effects: list[Effect], message: str = "") -> list[CallPreStart]:
        """Complete every call of PreStartContainer in these effects and those that follow. Returns them."""
        made = []
        todo = list(effects)
        while todo:
            effect = todo.pop(0)
            if isinstance(effect, CallPreStart):
                made.append(effect)
                todo += (
                    self.happens("pre_start_failed", effect.ticket, message)
                    if message
                    else self.happens("pre_started", effect.ticket)
                )
        return made

    def snapshot_with_runtime(self, name: str = GPU) -> Snapshot:
        return snapshot(self.manager, name, self.runtime.not_injected)
