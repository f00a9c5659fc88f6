"""TokenReviews and SubjectAccessReviews: who asks for our metrics, and whether they may."""

from typing import Any, Final

from nodedevice_operator.kube.decode import decode
from nodedevice_operator.kube.requests import Requests
from nodedevice_operator.objects.meta import Schema

_PLURALS: Final = {"TokenReview": "tokenreviews", "SubjectAccessReview": "subjectaccessreviews"}


class _ReviewSchema(Schema):
    status: dict[str, Any] = {}


class Reviews(Requests):
    """Its client has no fence: a standby serves metrics as well."""

    async def create(self, group: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        """The status that the API server gives it. Raises ApiError."""
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        data = await self._client.request("POST", kind, f"/apis/{group}/v1/{_PLURALS[kind]}", body=body)
        return decode("POST", kind, data, _ReviewSchema).status
