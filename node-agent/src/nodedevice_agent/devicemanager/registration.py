"""Validates a plugin's registration: its API version, its resource name and the name of its socket.

Source: kubelet device manager, registration (it has the API server's rules for extended resource names). Stricter in
one point: an endpoint is a file name inside the plugin directory; the kubelet follows `../` out of it.
"""

from collections.abc import Collection, Mapping

from nodedevice_api.extended_resources import resource_name_problem

SUPPORTED_VERSIONS = ("v1beta1",)
# For one socket, over all resources.
MAX_CONNECTIONS_OF_A_SOCKET = 64
# A plugin that registers again has two for a moment; one that keeps its old streams has more. The limits are per resource, and in
# total in addition to one for each: few enough for a process's limit of open files.
MAX_CONNECTIONS_OF_A_NAME = 16
MAX_FURTHER_CONNECTIONS = 64
# Registrations whose plugins have not responded yet, each for at most half a minute, next to one for each name with a place:
# all plugins of a node may register at once.
MAX_OPENING = 256
_MAX_SHOWN = 80
_MAX_VERSIONS = 5


class RegistrationRejected(Exception):
    """reason: one word for metrics. of_all: one message for all names, for causes that may reject more and more of them."""

    def __init__(self, reason: str, message: str, of_all: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.of_all = of_all


def check_registration(version: str, resource_name: str, endpoint: str) -> None:
    """Raises RegistrationRejected for the first invalid field."""
    _check(resource_name, f"API version {_shown(version)} is", is_supported=version in SUPPORTED_VERSIONS)
    if not endpoint or "/" in endpoint or endpoint in (".", "..") or not endpoint.isprintable():
        why = "must be the file name of a socket in the plugin directory"
        raise RegistrationRejected("Endpoint", f"endpoint {_shown(endpoint)} of {resource_name}: {why}")


def check_plugin_info(resource_name: str, supported_versions: Collection[str]) -> None:
    """Check a plugin that is discovered by its socket. Raises RegistrationRejected for the first invalid field."""
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


def check_connections(
    connections: Collection[tuple[str, str]],
    opening: Collection[tuple[str, str]],
    socket: str,
    resource_name: str,
    known: Collection[str],
) -> None:
    """Raises RegistrationRejected. connections: the open ones, each a socket and a resource name. opening: the ones being dialled.
    known: the names with a place. A known name is rejected only while it is being dialled: otherwise its own older connections are
    closed.
    """
    dialled = {name for _, name in opening}
    if resource_name in known and resource_name not in dialled:
        return
    of_this_socket = sum(1 for other, _ in (*connections, *opening) if other == socket)
    if of_this_socket >= MAX_CONNECTIONS_OF_A_SOCKET:
        remedy = "close streams that are no longer used, or serve fewer resources on one socket"
        message = f"{resource_name}: {of_this_socket} connections to this socket are open, which is the limit; {remedy}"
        of_all = f"more connections to one socket are refused: {MAX_CONNECTIONS_OF_A_SOCKET} are the limit; {remedy}"
        raise RegistrationRejected("Connections", message, of_all)
    new = len(opening) - len(dialled.intersection(known))
    if new >= MAX_OPENING:
        waits = f"{new} registered device plugins have not responded yet, which is the limit"
        message = f"{resource_name}: {waits}; register again, or stop plugins that hang"
        raise RegistrationRejected(
            "Connections", message, f"more registrations are refused: {waits}; stop plugins that hang"
        )


def surplus_connection(connections: Mapping[int, str], resource_name: str) -> int | None:
    """The name's oldest connection, if one more were too many of it or of all. connections: the resource name by endpoint."""
    own = [endpoint for endpoint, name in connections.items() if name == resource_name]
    further = len(connections) - len({*connections.values()})
    is_full = len(own) >= MAX_CONNECTIONS_OF_A_NAME or further >= MAX_FURTHER_CONNECTIONS
    return min(own) if own and is_full else None


def _shown(text: str) -> str:
    return ascii(text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "...")
