"""What comes from the API server: objects of tenants, of those who write NodeDeviceConfigs, and of DRA drivers."""

from collections.abc import AsyncGenerator, Callable
from functools import cache
from typing import Final

from tests.robustness.memory.scene import NODE, Scene

# an API server takes objects of so many bytes
_OCTETS: Final = 1_500_000
# more than a kubelet runs: those that have ended or were rejected are there, too
_PODS: Final = 250


async def pods_of_any_size(scene: Scene) -> AsyncGenerator[None, None]:
    """Each as large as the API server takes it; most of it is nothing that an agent needs."""
    for number in range(_PODS):
        scene.api.put("pods", f"n/p{number}", _pod(number, lambda: b'{"name":"c","image":"%b"}' % _filler(_OCTETS)))
    yield


async def names_of_variables(scene: Scene) -> AsyncGenerator[None, None]:
    """Containers that have devices, each with as many variables as fit into a pod."""
    for number in range(60):
        scene.api.put("pods", f"n/p{number}", _pod(number, _container_of_variables))
    yield


async def containers_of_pods(scene: Scene) -> AsyncGenerator[None, None]:
    """As many containers as fit into a pod, none of which asks for a device."""
    for number in range(110):
        scene.api.put("pods", f"n/p{number}", _pod(number, _containers))
    yield


def _pod(number: int, containers: Callable[[], bytes]) -> Callable[[], bytes]:
    return lambda: (
        (
            b'{"metadata":{"name":"p%d","namespace":"n","uid":"uid-p%d","resourceVersion":"1"},'
            b'"spec":{"nodeName":"%b","containers":[%b]},"status":{"phase":"Running"}}'
        )
        % (number, number, NODE.encode(), containers())
    )


@cache
def _filler(count: int) -> bytes:
    return b"x" * count


@cache
def _container_of_variables() -> bytes:
    variables = b",".join(b'{"name":"V%06d"}' % number for number in range(65_000))
    limits = b'{"limits":{"example.com/gpu":"1"}}'
    return b'{"name":"c","image":"i","resources":%b,"env":[%b]}' % (limits, variables)


@cache
def _containers() -> bytes:
    return b",".join(
        b'{"name":"container-%06d","image":"i","resources":{"limits":{"cpu":"1"}}}' % number for number in range(9_000)
    )


ROWS: Final = (pods_of_any_size, names_of_variables, containers_of_pods)
