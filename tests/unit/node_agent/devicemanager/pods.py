"""Pods and their containers, in one line each."""

from typing import Any

from msgspec import structs
from nodedevice_agent.devicemanager.pods import Container, ContainerKind, Pod

GPU = "example.com/gpu"
NIC = "example.com/nic"
# of a static pod's configuration, which is its UID at the kubelet
HASH = "0123456789abcdef0123456789abcdef"


def container(name: str = "main", kind: ContainerKind = ContainerKind.APP, gpu: int = 0, nic: int = 0) -> Container:
    """A container that requests so many of each; 0 is left out, as in decoded limits."""
    limits = {GPU: gpu, NIC: nic}
    return Container(name, kind, {name: count for name, count in limits.items() if count})


def app(name: str, gpu: int = 1, nic: int = 0) -> Container:
    return container(name, gpu=gpu, nic=nic)


def init(name: str, gpu: int = 1, nic: int = 0) -> Container:
    return container(name, ContainerKind.INIT, gpu, nic)


def sidecar(name: str, gpu: int = 1, nic: int = 0) -> Container:
    return container(name, ContainerKind.SIDECAR, gpu, nic)


def pod(uid: str, *containers: Container, gpu: int = 0, nic: int = 0, **state: Any) -> Pod:
    """A pod named like its UID; with one container `main` unless some are given."""
    return Pod(uid, "default", uid, containers or (container(gpu=gpu, nic=nic),), **state)


def mirror_pod(uid: str, config_hash: str = HASH, name: str = "static", gpu: int = 1, **state: Any) -> Pod:
    """An object with these annotations, whoever has made it."""
    return structs.replace(pod(uid, gpu=gpu, **state), name=name, config_hash=config_hash)
