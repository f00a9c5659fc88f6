"""Asks the API server what the reader may do, each thing once."""

from dataclasses import dataclass, field

from nodedevice_kube.api_errors import ApiError

from kubectl_nodedevice.fields import is_set
from kubectl_nodedevice.session import Session
from kubectl_nodedevice.why.reasons.rights import OF_THE_POD, OF_THE_RELEASE, Access

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass
class Reader:
    """Who runs the command. namespace: of the pod that is explained. system: of the release."""

    session: Session
    namespace: str = ""
    system: str = ""
    _known: dict[Access, bool | None] = field(default_factory=dict)

    def may(self, access: Access) -> bool | None:
        """None where the API server does not say."""
        if access not in self._known:
            self._known[access] = self._ask(access)
        return self._known[access]

    def _ask(self, access: Access) -> bool | None:
        resource, _, subresource = access.resource.partition("/")
        places = {OF_THE_POD: self.namespace, OF_THE_RELEASE: self.system}
        attributes = {
            "verb": access.verb,
            "group": access.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": places.get(access.namespace, access.namespace),
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        try:
            return is_set(self.session.api.post("selfsubjectaccessreviews", _REVIEWS, body), "status", "allowed")
        except ApiError:
            return None
