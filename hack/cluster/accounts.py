"""Speak to the API server as somebody in particular: with the token that a pod on a node has mounted, or one bound to nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

from lightkube import Client, KubeConfig
from lightkube.config.models import User
from lightkube.models.authentication_v1 import BoundObjectReference, TokenRequestSpec
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Pod, ServiceAccountToken

from hack.cluster.clients import open_client
from hack.cluster.control_plane.components import ISSUER
from hack.cluster.control_plane.control_plane import ControlPlane

_TOKEN_SECONDS = 3600


@contextmanager
def client_with_token(
    control_plane: ControlPlane,
    namespace: str,
    account: str,
    bound_to: BoundObjectReference | None = None,
    field_manager: str | None = None,
) -> Iterator[Client]:
    """A client with a fresh token of that ServiceAccount; bound_to: the object that it ends with and names."""
    spec = TokenRequestSpec(audiences=[ISSUER], expirationSeconds=_TOKEN_SECONDS, boundObjectRef=bound_to)
    issued = control_plane.client.create(
        ServiceAccountToken(metadata=ObjectMeta(), spec=spec), account, namespace=namespace
    )
    assert issued.status is not None
    admin = KubeConfig.from_file(control_plane.admin_kubeconfig).get()
    assert admin is not None
    config = KubeConfig.from_one(cluster=admin.cluster, user=User(token=issued.status.token))
    with open_client(config, field_manager) as client:
        yield client


@contextmanager
def client_of_pod(
    control_plane: ControlPlane, namespace: str, account: str, node: str, field_manager: str | None = None
) -> Iterator[Client]:
    """A client with the token that a pod of that account on that node has; the pod is made for it, and removed."""
    pod = Pod(
        metadata=ObjectMeta(generateName=f"{account}-", namespace=namespace),
        spec=PodSpec(
            serviceAccountName=account, nodeName=node, containers=[Container(name="main", image="none.invalid/none")]
        ),
    )
    made = control_plane.client.create(pod)
    assert made.metadata is not None
    assert made.metadata.name is not None
    bound_to = BoundObjectReference(apiVersion="v1", kind="Pod", name=made.metadata.name, uid=made.metadata.uid)
    try:
        with client_with_token(control_plane, namespace, account, bound_to, field_manager) as client:
            yield client
    finally:
        control_plane.client.delete(Pod, made.metadata.name, namespace=namespace, grace_period=0)
