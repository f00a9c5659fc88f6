"""Namespaces for tests: usable when made, and quick to remove."""

from collections.abc import Mapping
from types import MappingProxyType

from lightkube import Client
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace, Pod, ServiceAccount

from hack.cluster.waiting import wait_until


def create_namespace(client: Client, name: str, labels: Mapping[str, str] = MappingProxyType({})) -> None:
    """Make a namespace, and wait for the ServiceAccount `default` without which it refuses pods."""
    client.create(Namespace(metadata=ObjectMeta(name=name, labels=dict(labels))))
    wait_until(lambda: has_default_service_account(client, name), f"namespace {name} has its default ServiceAccount")


def remove_namespace(client: Client, name: str, grace_seconds: int | None = None) -> None:
    """Delete a namespace. Its pods go first and are gone when this returns.

    grace_seconds: of those pods; None: each its own. Bound to a node without a kubelet they go at once with 0, and else only when
    the controller manager finds them there without their Node, a minute later.

    Left to the namespace controller they would cost their grace period: it comes back only after half of that.
    """
    client.deletecollection(Pod, namespace=name, grace_period=grace_seconds)
    wait_until(lambda: not any(client.list(Pod, namespace=name)), f"no pods are left in namespace {name}")
    client.delete(Namespace, name)


def has_default_service_account(client: Client, namespace: str) -> bool:
    try:
        client.get(ServiceAccount, "default", namespace=namespace)
    except ApiError as exc:
        if exc.status.code == 404:
            return False
        raise
    return True
