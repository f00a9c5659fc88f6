# AgentError
# ├── SettingsError            a flag, an environment variable or the config file is wrong
# ├── DirectoryServed          another device manager serves this plugin directory
# ├── StateDirectoryUsed       another agent writes its checkpoint there
# ├── PluginFailed             a call to a device plugin failed, timed out or made no sense
# └── ApiError                 the API server
#     ├── ApiUnreachable       no answer, or one that is no answer: a time-out, its own failure (5xx)
#     │   └── ApiDisconnected          no connection
#     ├── ApiForbidden         401 or 403
#     ├── ApiNotFound          404
#     ├── ApiGone              410: the resource version is too old
#     └── ApiRefused           any other 4xx, and a 500 that says the object itself cannot be taken
"""Everything the agent raises on purpose. Each edge translates its library's errors into these."""


class AgentError(Exception):
    """The text names the thing and the remedy."""


class SettingsError(AgentError):
    """A setting is wrong."""


class DirectoryServed(AgentError):
    """Another device manager answers on the registration socket, or holds the directory's lock."""

    def __init__(self, directory: str, how: str) -> None:
        super().__init__(
            f"plugin directory {directory} is served by another device manager ({how}); "
            "stop that one or give this agent a --plugin-dir of its own"
        )
        self.directory = directory


class StateDirectoryUsed(AgentError):
    """Another agent holds the state directory's lock."""

    def __init__(self, directory: str) -> None:
        super().__init__(
            f"state directory {directory} is used by another agent; stop that one or give this agent a --state-dir of its own"
        )
        self.directory = directory


class PluginFailed(AgentError):
    """call: the RPC's name. The text is bounded and printable, whatever the plugin sent."""

    def __init__(self, resource_name: str, call: str, detail: str) -> None:
        shown = "".join(c if c.isprintable() else " " for c in detail[:512]).strip()
        super().__init__(f"{call} of the device plugin of {resource_name} failed: {shown or 'no reason given'}")
        self.resource_name = resource_name
        self.call = call


class ApiError(AgentError):
    """status: the HTTP status, 0 where there was none."""

    def __init__(self, what: str, detail: str, status: int = 0) -> None:
        super().__init__(f"{what}: {detail}")
        self.status = status


class ApiUnreachable(ApiError):
    """Worth trying again."""


class ApiDisconnected(ApiUnreachable):
    """No connection. The cluster's edge has said so, once for all that is asked of it."""


class ApiForbidden(ApiError):
    """The credentials or the role are not enough; worth trying again, as an admin can mend it."""


class ApiNotFound(ApiError):
    """The object is not there."""


class ApiGone(ApiError):
    """A watch has to begin with a new list."""


class ApiRefused(ApiError):
    """The server will not take this object; sending it again unchanged is no use."""
