"""Validates a plugin's registration: its API version, its resource name and the name of its socket.

Source: kubelet device manager, registration (its rules for extended resource names are those of the API server). Stricter in
one point: an endpoint is a file name inside the plugin directory; the kubelet follows `../` out of it.
"""

from collections.abc import Collection

from nodedevice_api.extended_resources import resource_name_problem

SUPPORTED_VERSIONS = ("v1beta1",)
# Of all plugins together: far more than a node has, and few enough for a process's limit of open files.
MAX_CONNECTIONS = 256
# Of one socket, for any resources. A plugin that registers again has two for a moment; one that keeps its old streams has more.
MAX_CONNECTIONS_OF_A_SOCKET = 64
_MAX_SHOWN = 80
_MAX_VERSIONS = 5


class RegistrationRejected(Exception):
    """A rejected registration. reason: one word for metrics; the message names the remedy."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def check_registration(version: str, resource_name: str, endpoint: str) -> None:
    """Raises RegistrationRejected for the first invalid field."""
    _check(resource_name, f"API version {_shown(version)} is", is_supported=version in SUPPORTED_VERSIONS)
    if not endpoint or "/" in endpoint or endpoint in (".", "..") or not endpoint.isprintable():
        why = "must be the file name of a socket in the plugin directory"
        raise RegistrationRejected("Endpoint", f"endpoint {_shown(endpoint)} of {resource_name}: {why}")


def check_plugin_info(resource_name: str, supported_versions: Collection[str]) -> None:
    """For a plugin that is discovered by its socket. Raises RegistrationRejected for the first invalid field."""
    offered = ", ".join(_shown(version) for version in list(supported_versions)[:_MAX_VERSIONS]) or "none"
    is_supported = not set(SUPPORTED_VERSIONS).isdisjoint(supported_versions)
    _check(resource_name, f"API versions {offered} are", is_supported=is_supported)


def _check(resource_name: str, offered: str, *, is_supported: bool) -> None:
    """offered: the API versions, as the subject of a sentence."""
    if not is_supported:
        why = f"{offered} not supported; supported: {', '.join(SUPPORTED_VERSIONS)}"
        raise RegistrationRejected("Version", f"resource name {_shown(resource_name)}: {why}")
    problem = resource_name_problem(resource_name)
    if problem:
        raise RegistrationRejected("ResourceName", f"resource name {_shown(resource_name)}: {problem}")


def check_connection_limit(connections: Collection[tuple[str, str]], socket: str, resource_name: str) -> None:
    """Whether one more connection may be opened. Raises RegistrationRejected.

    connections: the open ones, each a socket and a resource name. A connection that replaces another because its plugin
    registers again is not rejected because of the limit for all plugins.
    """
    of_this_socket = sum(1 for other, _ in connections if other == socket)
    if of_this_socket >= MAX_CONNECTIONS_OF_A_SOCKET:
        raise RegistrationRejected(
            "Connections",
            f"{resource_name}: {of_this_socket} connections to this socket are open, which is the limit; "
            "close streams that are no longer used, or serve fewer resources on one socket",
        )
    if len(connections) >= MAX_CONNECTIONS and (socket, resource_name) not in connections:
        raise RegistrationRejected(
            "Connections",
            f"{resource_name}: {len(connections)} connections to device plugins are open, which is the limit; "
            "stop plugins that this node does not need",
        )


def _shown(text: str) -> str:
    return ascii(text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "...")
