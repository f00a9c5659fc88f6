"""Finds a person's name at the API server: cordons carry it, and people may lift their own."""

from typing import Final

from nodedevice_kube.api_errors import ApiError
from nodedevice_kube.fields import text_of

from kubectl_nodedevice.errors import LoginProblem
from kubectl_nodedevice.session import Session
from kubectl_nodedevice.text import plain

_REVIEW: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
# bound of the CRD
_LONGEST_NAME: Final = 128


def own_name(session: Session, given: str = "") -> str:
    """given: the value of --by, or "". Raises ApiError, LoginProblem."""
    if given:
        name = given
    else:
        try:
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
            name = text_of(session.api.post("your own name", _REVIEW, body), "status", "userInfo", "username")
        except ApiError as exc:
            # an API server older than 1.28, or one that forbids it
            if exc.status == 0:
                raise
            name = session.flags.as_user or session.login.user
    name = plain(name).strip()[:_LONGEST_NAME]
    if not name:
        raise LoginProblem("your own name is not known here", "give it by --by")
    return name
