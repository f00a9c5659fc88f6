"""A container has the numbers that it was given, and cannot ask for others by NUMBERS."""

from collections.abc import Mapping, Sequence

from nodedevice_agent.plugins.contract import (
    Container,
    Creation,
    CreationHook,
    CreationRefused,
    Edits,
    Plugin,
    Pod,
    Response,
)


class NumbersCreation:
    def reads(self, entry: str) -> bool:
        return entry.startswith("NUMBERS=")

    def decides(self, name: str) -> bool:
        return name == "NUMBERS"

    def overrules(self, pod: Pod, edits: Edits) -> bool:
        return False

    def check(self, pod: Pod, container: Container, *, holds: bool) -> None:
        if len(container.env) > 1:
            raise CreationRefused(f"container {container.name} has NUMBERS twice")

    def joined(self, container: str, responses: Sequence[Response]) -> Mapping[str, str]:
        return {"NUMBERS": "+".join(sorted(response.envs["NUMBERS"] for response in responses))}

    def for_holder(self, container: str, env: Sequence[str], edits: Edits) -> Creation:
        return Creation(edits.envs, tuple(entry.partition("=")[0] for entry in env), outcome="overruled", event="kept")

    def for_any(
        self, pod: Pod, container: Container, given: Edits, of_kubelet: Edits, *, holds: bool
    ) -> Creation | None:
        if holds or not container.env:
            return None
        return Creation({"NUMBERS": "none"}, outcome="withheld", event="container gets no number")

    def unknown(self, container: str, why: str) -> str:
        return why

    def note(self, exempt_pods: Sequence[str]) -> str:
        return "numbers are counted"


def hook(configured: Sequence[Plugin], namespace: str) -> CreationHook:
    return NumbersCreation()
