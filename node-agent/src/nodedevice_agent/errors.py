"""Errors of the agent, apart from errors of the API server (nodedevice_kube.api_errors).

AgentError
├── AgentSettingsError, DirectoryServed, StateDirectoryUsed   the agent cannot start
├── LeaseHeld                                                 the agent stops
├── TaskEnded                                                 the process exits, to be started again
└── PluginFailed
"""

from nodedevice_common.text import shown
from nodedevice_kube.api_errors import ApiError
from nodedevice_kube.masking import masked

# raised by every request to the API server; exported for importers of this module
ApiRequestError = ApiError


class AgentError(Exception):
    """The text names the thing and the remedy. It never has a secret, also not in quoted parts."""

    def __init__(self, text: str = "") -> None:
        super().__init__(masked(text))


class AgentSettingsError(AgentError):
    """A flag, an environment variable or the config file is wrong."""


class DirectoryServed(AgentError):
    """Another device manager serves the registration socket, or holds the directory's lock."""

    def __init__(self, directory: str, how: str) -> None:
        super().__init__(
            f"plugin directory {directory} is served by another device manager ({how}); "
            "stop that one or give this agent a --plugin-dir of its own"
        )
        self.directory = directory


class StateDirectoryUsed(AgentError):
    """Another agent holds the state directory's lock and writes its checkpoint there."""

    def __init__(self, directory: str) -> None:
        super().__init__(
            f"state directory {directory} is used by another agent; stop that one or give this agent a --state-dir of its own"
        )
        self.directory = directory


class LeaseHeld(AgentError):
    """Another agent with this node's name is alive: two would allocate the same devices, and undo each other's writes."""

    def __init__(self, lease: str, holder: str) -> None:
        super().__init__(
            f"lease {lease} is held by another agent ({shown(holder, 128)}); stop that one, "
            "or give each node one agent with a --node-name and a --state-dir of its own"
        )


class TaskEnded(AgentError):
    """An essential task has ended, which should never end."""


class PluginFailed(AgentError):
    """A call failed, timed out or returned an invalid response. call: the RPC's name. The text is bounded and printable."""

    def __init__(self, resource_name: str, call: str, detail: str) -> None:
        # before the registration the name is that of a socket's file, which may be any text
        of = f"{call} of the device plugin of {shown(resource_name)} failed"
        super().__init__(f"{of}: {shown(detail) or 'no reason given'}")
        self.resource_name = resource_name
        self.call = call
