"""What a container runtime's NRI plugin does where devices do not reach containers by NRI: nothing."""

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.runtime import RuntimeHandler, Validator


class NoopHandler(RuntimeHandler):
    """For --delivery kubelet or none.

    The annotation that makes a pod require this plugin does not depend on its node, so the plugin has to be there on each.
    """

    def runtime_connected(self, name: str, version: str, validator: Validator) -> None:
        metrics.RUNTIME_CONNECTED.set(1)

    def runtime_disconnected(self, reason: str) -> None:
        metrics.RUNTIME_CONNECTED.set(0)
