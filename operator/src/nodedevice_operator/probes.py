"""Health of the operator, served at /healthz and /readyz beside /metrics."""

from collections.abc import Callable

from nodedevice_common import observability
from prometheus_client import CollectorRegistry

from nodedevice_operator.errors import OperatorSettingsError
from nodedevice_operator.kube.health import Health


def serve(address: tuple[str, int], health: Health, registry: CollectorRegistry) -> tuple[str, int]:
    """Begin to answer, until the process ends; the address in use.

    Raises OperatorSettingsError when the address cannot be used.
    """
    try:
        server = observability.serve(
            address, {"/healthz": _check(health.live), "/readyz": _check(health.ready)}, registry
        )
    except OSError as exc:
        raise OperatorSettingsError(
            "httpAddress", f"{address[0]}:{address[1]} cannot be used ({exc.strerror or exc})"
        ) from exc
    host, port = server.server_address[:2]
    return str(host), int(port)


def _check(question: Callable[[], tuple[bool, tuple[str, ...]]]) -> observability.Check:
    def answer() -> tuple[bool, str]:
        is_good, problems = question()
        return is_good, "\n".join(["ok" if is_good else "not ok", *problems])

    return answer
