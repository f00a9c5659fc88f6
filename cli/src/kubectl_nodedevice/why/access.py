"""Asks the API server which rights the reader has, each once."""

from collections.abc import Callable
from functools import cache

from nodedevice_kube.api_errors import ApiError
from nodedevice_kube.fields import is_set

from kubectl_nodedevice.session import Session
from kubectl_nodedevice.why.reasons.rights import OF_THE_POD, OF_THE_RELEASE, Access

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def rights_of(session: Session, namespace: str, system: str) -> Callable[[Access], bool | None]:
    """Return a function that checks a right; it returns None if the API server does not say.

    namespace: of the explained pod. system: of the release.
    """
    places = {OF_THE_POD: namespace, OF_THE_RELEASE: system}

    @cache
    def may(access: Access) -> bool | None:
        resource, _, subresource = access.resource.partition("/")
        attributes = {
            "verb": access.verb,
            "group": access.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": places.get(access.namespace, access.namespace),
        }
        kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        body = {**kind, "spec": {"resourceAttributes": attributes}}
        try:
            return is_set(session.api.post("selfsubjectaccessreviews", _REVIEWS, body), "status", "allowed")
        except ApiError:
            return None

    return may
