"""A container has the numbers that it was given, and cannot ask for others by NUMBERS."""

from collections.abc import Mapping, Sequence

from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.runtime import RunningContainer, Sandbox
from nodedevice_agent.plugins.contract import Creation, CreationHook, Given, Plugin, Response


class NumbersCreation:
    def reads(self, entry: str) -> bool:
        return entry.startswith("NUMBERS=")

    def decides(self, name: str) -> bool:
        return name == "NUMBERS"

    def overrules(self, pod: Sandbox, edits: ContainerEdits) -> bool:
        return False

    def joined(self, container: str, responses: Sequence[Response]) -> Mapping[str, str]:
        return {"NUMBERS": "+".join(sorted(response.envs["NUMBERS"] for response in responses))}

    def for_holder(self, container: str, env: Sequence[str], edits: ContainerEdits) -> Creation:
        return Creation(edits.envs, tuple(entry.partition("=")[0] for entry in env), outcome="overruled", event="kept")

    def for_any(self, pod: Sandbox, container: RunningContainer, gets: Given) -> Creation | None:
        if gets.holds or not container.env:
            return None
        if len(container.env) > 1:
            return Creation(refusal=f"container {container.name} has NUMBERS twice")
        return Creation({"NUMBERS": "none"}, outcome="withheld", event="container gets no number")

    def note(self, exempt_pods: Sequence[str]) -> str:
        return "numbers are counted"


def hook(configured: Sequence[Plugin], namespace: str) -> CreationHook:
    return NumbersCreation()
