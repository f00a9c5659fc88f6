"""Requests that create Kubernetes Events and count repetitions, and how one is encoded."""

from typing import Any, Final

from nodedevice_api import names

from nodedevice_operator.events.transitions import Event
from nodedevice_operator.kube.api import CORE, Requests, now_text, path_segment
from nodedevice_operator.kube.client import MERGE_PATCH

# Characters; the API server rejects a longer message.
_LONGEST_MESSAGE: Final = 1024


class EventsApi(Requests):
    """Writes Events. Those about cluster-scoped objects go into the namespace default."""

    async def post_event(self, event: Event, suffix: str) -> None:
        """Create an Event. suffix: makes its name unique. Raises Conflict when there is one of that name."""
        await self._client.request("POST", "events", _path(event), body=_encode(event, suffix))

    async def repeat_event(self, event: Event, suffix: str, count: int) -> None:
        """Set the count of an Event that was posted with that suffix, as it has happened again. Raises NotFound."""
        path = f"{_path(event)}/{path_segment(_name(event, suffix))}"
        body = {"count": count, "lastTimestamp": now_text()}
        await self._client.request("PATCH", "events", path, body=body, content_type=MERGE_PATCH)


def _namespace(event: Event) -> str:
    return event.about.namespace or "default"


def _path(event: Event) -> str:
    return f"{CORE}/namespaces/{path_segment(_namespace(event))}/events"


def _name(event: Event, suffix: str) -> str:
    # a name may have 253 characters, and the suffix is what makes it unique
    return f"{event.about.name[:230].rstrip('.-')}.{suffix}"


def _encode(event: Event, suffix: str) -> dict[str, Any]:
    now = now_text()
    about = event.about
    involved = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
    if about.namespace:
        involved["namespace"] = about.namespace
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": _name(event, suffix), "namespace": _namespace(event)},
        "involvedObject": involved,
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:_LONGEST_MESSAGE],
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": names.OPERATOR_FIELD_MANAGER},
        "reportingComponent": names.OPERATOR_FIELD_MANAGER,
        "reportingInstance": names.OPERATOR_FIELD_MANAGER,
    }
