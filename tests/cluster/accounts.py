"""Speaks to the API server with a certain identity: with the token that a pod on a node has mounted, or one bound to
nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.api import Client, Object, Pod, ServiceAccountToken, open_client
from tests.cluster.control_plane.components import ISSUER
from tests.cluster.control_plane.control_plane import ControlPlane

_TOKEN_SECONDS = 3600


@contextmanager
def client_with_token(
    control_plane: ControlPlane,
    namespace: str,
    account: str,
    bound_to: Object | None = None,
    field_manager: str | None = None,
) -> Iterator[Client]:
    """A client with a fresh token of that ServiceAccount. bound_to: the object that the token is bound to."""
    spec = Object(audiences=[ISSUER], expirationSeconds=_TOKEN_SECONDS, boundObjectRef=bound_to)
    issued = control_plane.client.create(
        ServiceAccountToken(metadata=Object(), spec=spec), account, namespace=namespace
    )
    with open_client(control_plane.admin_kubeconfig, field_manager, issued.status.token) as client:
        yield client


@contextmanager
def client_of_pod(
    control_plane: ControlPlane, namespace: str, account: str, node: str, field_manager: str | None = None
) -> Iterator[Client]:
    """A client with the token of a pod of that account on that node; the pod is created for it, and removed."""
    pod = Pod(
        metadata=Object(generateName=f"{account}-", namespace=namespace),
        spec=Object(
            serviceAccountName=account, nodeName=node, containers=[Object(name="main", image="none.invalid/none")]
        ),
    )
    made = control_plane.client.create(pod)
    bound_to = Object(apiVersion="v1", kind="Pod", name=made.metadata.name, uid=made.metadata.uid)
    try:
        with client_with_token(control_plane, namespace, account, bound_to, field_manager) as client:
            yield client
    finally:
        control_plane.client.delete(Pod, made.metadata.name, namespace=namespace, grace_period=0)
