"""What comes from the API server: objects of tenants, of those who write NodeDeviceConfigs, and of DRA drivers."""

import asyncio
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


async def configurations_of_other_nodes(scene: Scene) -> AsyncGenerator[None, None]:
    for number in range(256):
        scene.api.put("nodedeviceconfigs", f"other-{number}", _config(f"other-{number}", "b", 1_000_000))
    yield


async def configurations_of_the_node(scene: Scene) -> AsyncGenerator[None, None]:
    """As long as they may be; and then one is edited without end."""
    for number in range(60):
        scene.api.put("nodedeviceconfigs", f"own-{number}", _config(f"own-{number}", "a", 500_000))
    yield
    await scene.agent.until_ready()
    for _ in range(100):
        scene.api.put("nodedeviceconfigs", "own-0", _config("own-0", "a", 900_000))


def _config(name: str, pool: str, octets: int) -> Callable[[], bytes]:
    entry = b'{"resourceName":"example.com/%b","count":1}' % name.encode()
    plugins = b'{"simulated":[%b],"generic":[%b]}' % (entry, b",".join([b"[]"] * (octets // 3)))
    metadata = b'{"generation":1,"name":"%b","resourceVersion":"1","uid":"uid-%b"}' % (name.encode(), name.encode())
    spec = b'{"nodeSelector":{"pool":"%b"},"plugins":%b}' % (pool.encode(), plugins)
    return lambda: b'{"metadata":%b,"spec":%b}' % (metadata, spec)


async def a_pod_that_changes_without_end(scene: Scene) -> AsyncGenerator[None, None]:
    yield
    await scene.agent.until_ready()
    for version in range(200):
        changed = _pod(9_999, _container_of_variables, version=1_000_000 + version)
        scene.api.put("pods", "n/p9999", changed)
        await asyncio.sleep(0.02)


def _pod(number: int, containers: Callable[[], bytes], version: int = 1) -> Callable[[], bytes]:
    return lambda: (
        (
            b'{"metadata":{"name":"p%d","namespace":"n","uid":"uid-p%d","resourceVersion":"%d"},'
            b'"spec":{"nodeName":"%b","containers":[%b]},"status":{"phase":"Running"}}'
        )
        % (number, number, version, NODE.encode(), containers())
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


ROWS: Final = (
    configurations_of_other_nodes,
    configurations_of_the_node,
    a_pod_that_changes_without_end,
    pods_of_any_size,
    names_of_variables,
    containers_of_pods,
)
