"""A RuntimeHandler that records its calls and returns what a test sets."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.runtime import (
    CreationSettings,
    InjectionRefused,
    RunningContainer,
    RuntimeDevice,
    RuntimeHandler,
    Sandbox,
    Validator,
)

# long, so that a test that fails does so by its own doing
PATIENCE_SECONDS = 60.0


class Recorder(RuntimeHandler):
    """edits: the result of create_container; refusal, error: what that, validate and container_started raise instead.

    gate: create_container waits for it first. validators: the argument of each validator_seen. settings: the result of
    creation_settings.
    """

    def __init__(self) -> None:
        self.calls: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        self.edits: ContainerEdits | None = None
        self.settings = CreationSettings()
        self.refusal = ""
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.validators: list[Validator] = []

    async def next(self) -> tuple[Any, ...]:
        """The next call: a word for it, and its arguments."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.calls.get()

    def runtime_connected(self, name: str, version: str, validator: Validator) -> None:
        self.calls.put_nowait(("connected", name, version, validator))

    def validator_seen(self, validator: Validator) -> None:
        self.validators.append(validator)

    def runtime_disconnected(self, reason: str) -> None:
        self.calls.put_nowait(("disconnected", reason))

    def synchronized(self, sandboxes: Sequence[Sandbox], containers: Sequence[RunningContainer]) -> None:
        self.calls.put_nowait(("synchronized", list(sandboxes), list(containers)))

    def reads_variable(self, entry: str) -> bool:
        return True

    async def create_container(self, sandbox: Sandbox, container: RunningContainer) -> ContainerEdits | None:
        self.calls.put_nowait(("create", sandbox, container))
        if self.gate is not None:
            await self.gate.wait()
        self._trouble()
        return self.edits

    def check_files(self, sandbox: Sandbox, container: str, numbers: Collection[str]) -> None:
        self.calls.put_nowait(("files", container, set(numbers)))

    async def creation_settings(self, sandbox: Sandbox, container: RunningContainer) -> CreationSettings:
        return self.settings

    def creation_adjusted(
        self, sandbox: Sandbox, container: RunningContainer, devices: tuple[RuntimeDevice, ...]
    ) -> None:
        self.calls.put_nowait(("adjusted", container.id, devices))

    def creation_refused(self, sandbox: Sandbox, container: RunningContainer) -> None:
        self.calls.put_nowait(("refused", sandbox, container))

    def validate(self, sandbox: Sandbox, container: RunningContainer) -> None:
        self.calls.put_nowait(("validate", sandbox, container))
        self._trouble()

    def container_started(self, sandbox: Sandbox, container: RunningContainer) -> None:
        self.calls.put_nowait(("started", sandbox, container))
        self._trouble()

    def container_ended(self, sandbox: Sandbox, container: RunningContainer) -> None:
        self.calls.put_nowait(("ended", sandbox, container))

    def sandbox_removed(self, sandbox: Sandbox) -> None:
        self.calls.put_nowait(("removed", sandbox))

    def _trouble(self) -> None:
        if self.refusal:
            raise InjectionRefused(self.refusal)
        if self.error is not None:
            raise self.error
