"""The request that writes the operator's conditions of a NodeDevice."""

from collections.abc import Sequence
from typing import Any

from nodedevice_api import names

from nodedevice_operator.conditions.conditions import ConditionValue
from nodedevice_operator.errors import NotFound
from nodedevice_operator.kube.api import OWN, Requests, path_segment
from nodedevice_operator.kube.decode import decode_record
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, NodeDeviceSchema, node_device_record


class ConditionsApi(Requests):
    """Writes conditions of NodeDevices."""

    async def apply_conditions(
        self, record: NodeDeviceRecord, conditions: Sequence[ConditionValue]
    ) -> NodeDeviceRecord:
        """Write all the operator's conditions of this NodeDevice; return the object after the write. Nobody else owns these types.

        Raises NotFound when it is gone, also when another object has its name by now.
        """
        written = await self._apply_by_name(record.name, conditions)
        if written.uid != record.uid:
            # The API server ignores a uid in the status of a custom resource (1.37). Conditions decided for the deleted object
            # are removed from its successor; the watch brings the successor, and it gets conditions of its own.
            await self._apply_by_name(record.name, ())
            raise NotFound("PATCH", f"{names.NODE_DEVICES}/status", f"{record.name} is another object by now")
        return written

    async def _apply_by_name(self, name: str, conditions: Sequence[ConditionValue]) -> NodeDeviceRecord:
        path = f"{OWN}/{names.NODE_DEVICES}/{path_segment(name)}/status"
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.NODE_DEVICE,
            "metadata": {"name": name},
            "status": {"conditions": [_encode(condition) for condition in conditions]},
        }
        data = await self._apply(f"{names.NODE_DEVICES}/status", path, body, force=True)
        return decode_record("PATCH", names.NODE_DEVICES, data, NodeDeviceSchema, node_device_record)


def _encode(value: ConditionValue) -> dict[str, Any]:
    return {
        "type": value.type,
        "status": value.status,
        "reason": value.reason,
        "message": value.message,
        "lastTransitionTime": value.since,
        "observedGeneration": value.observed_generation,
    }
