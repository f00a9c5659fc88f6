"""What a container runtime's NRI plugin does where devices do not reach containers by NRI: nothing."""

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.runtime import CreationSettings, RunningContainer, Sandbox, Validator


class NoopHandler:
    """A RuntimeHandler that injects nothing: for --delivery kubelet or none.

    The annotation that makes a pod require this plugin does not depend on its node, so the plugin has to be there on each.
    """

    def runtime_connected(self, name: str, version: str, validator: Validator) -> None:
        metrics.RUNTIME_CONNECTED.set(1)

    def runtime_disconnected(self, reason: str) -> None:
        metrics.RUNTIME_CONNECTED.set(0)

    def reads_variable(self, entry: str) -> bool:
        return False

    async def create_container(self, sandbox: Sandbox, container: RunningContainer) -> ContainerEdits | None:
        return None

    async def creation_settings(self, sandbox: Sandbox, container: RunningContainer) -> CreationSettings:
        return CreationSettings()

    def _do_nothing(self, *args: object, **kwargs: object) -> None:
        """Every container is valid, and no pod depends on the validator here."""

    validator_seen = synchronized = validate = check_files = _do_nothing
    creation_adjusted = creation_refused = container_started = container_ended = sandbox_removed = _do_nothing
