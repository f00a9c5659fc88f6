"""What comes from the API server: objects of tenants, of those who write NodeDeviceConfigs, and of DRA drivers."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import cache
from typing import Final

from tests.fakes.played_api.kinds import CLAIMS, CONFIGS, NODE_DEVICES, PODS, SLICES
from tests.fakes.played_api.store import Made
from tests.fakes.pod_resources import ClaimedDevice
from tests.robustness.memory.scene import NODE, Scene

# an API server takes objects of so many bytes
_OCTETS: Final = 1_500_000
# more than a kubelet runs: those that have ended or were rejected are there, too
_PODS: Final = 250


async def pods_of_any_size(scene: Scene) -> AsyncGenerator[None, None]:
    """Each as large as the API server takes it; most of it is nothing that an agent needs."""
    for number in range(_PODS):
        scene.api.put(
            PODS, Made("n", f"p{number}", _pod(number, lambda: b'{"name":"c","image":"%b"}' % _filler(_OCTETS)))
        )
    yield


async def names_of_variables(scene: Scene) -> AsyncGenerator[None, None]:
    """Containers that have devices, each with as many variables as fit into a pod."""
    for number in range(60):
        scene.api.put(PODS, Made("n", f"p{number}", _pod(number, _container_of_variables)))
    yield


async def containers_of_pods(scene: Scene) -> AsyncGenerator[None, None]:
    """As many containers as fit into a pod, none of which asks for a device."""
    for number in range(110):
        scene.api.put(PODS, Made("n", f"p{number}", _pod(number, _containers)))
    yield


async def configurations_of_other_nodes(scene: Scene) -> AsyncGenerator[None, None]:
    for number in range(256):
        scene.api.put(CONFIGS, Made("", f"other-{number}", _config(f"other-{number}", "b", 1_000_000)))
    yield


async def configurations_of_the_node(scene: Scene) -> AsyncGenerator[None, None]:
    """As long as they may be; and then one is edited without end."""
    for number in range(60):
        scene.api.put(CONFIGS, Made("", f"own-{number}", _config(f"own-{number}", "a", 500_000)))
    yield
    await scene.agent.until_ready()
    await scene.agent.until_logged("configuration refused", 58)
    for _ in range(100):
        scene.api.put(CONFIGS, Made("", "own-0", _config("own-0", "a", 900_000)))


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
        scene.api.put(PODS, Made("n", "p9999", changed))
        await asyncio.sleep(0.02)


async def slices_of_drivers(scene: Scene) -> AsyncGenerator[None, None]:
    """More than are read of a node, each of 128 devices with as many attributes as fit."""
    scene.api.serve(SLICES, CLAIMS)
    for number in range(400):
        scene.api.put(SLICES, Made("", f"s{number}", _slice(number)))
    yield
    await scene.agent.until_ready()
    for number in range(20):
        scene.api.put(SLICES, Made("", f"s{number}", _slice(number)))


def _slice(number: int) -> Callable[[], bytes]:
    metadata = b'{"name":"s%d","uid":"uid-s%d","resourceVersion":"1","generation":1}' % (number, number)
    pool = b'{"name":"p%d","generation":1,"resourceSliceCount":8}' % (number // 8)
    spec = b'"driver":"d%d.example.com","pool":%b,"nodeName":"%b"' % (number // 100, pool, NODE.encode())
    return lambda: b'{"metadata":%b,"spec":{%b,"devices":[%b]}}' % (metadata, spec, _devices(number % 8))


@cache
def _devices(number: int) -> bytes:
    value = b'{"string":"%b"}' % _filler(64)
    attributes = b",".join(b'"attribute-%03d":%b' % (index, value) for index in range(80))
    devices = (b'{"name":"d%d-%d","attributes":{%b}}' % (number, index, attributes) for index in range(128))
    return b",".join(devices)


async def statuses_of_node_devices(scene: Scene) -> AsyncGenerator[None, None]:
    """Read where the agent's state was lost, as here; each with as many devices as the API server takes."""
    for number in range(scene.names_of_gone):
        scene.api.put(NODE_DEVICES, Made("", f"{NODE}-r{number}", _node_device(number)))
    yield


def _node_device(number: int) -> Callable[[], bytes]:
    name = b"%b-r%d" % (NODE.encode(), number)
    metadata = b'{"name":"%b","resourceVersion":"1","uid":"uid-%b"}' % (name, name)
    spec = b'{"nodeName":"%b","resourceName":"example.com/r%d"}' % (NODE.encode(), number)
    return lambda: b'{"metadata":%b,"spec":%b,"status":{"devices":[%b]}}' % (metadata, spec, _many_devices())


@cache
def _many_devices() -> bytes:
    return b",".join(b'{"id":"device-%05d","healthy":true}' % number for number in range(4_096))


async def claims_of_pods(scene: Scene) -> AsyncGenerator[None, None]:
    """Of pods that run, each as long as is read, with as many devices as the API server takes."""
    scene.api.serve(SLICES, CLAIMS)
    for number in range(100):
        scene.api.put(PODS, Made("n", f"claiming-{number}", _claiming(number)))
        for claim in range(4):
            name = f"claim-{number}-{claim}"
            scene.api.put(CLAIMS, Made("n", name, _claim(name, f"uid-claiming-{number}")))
            device = ClaimedDevice("n", f"claiming-{number}", "c", name, "d0.example.com", "p0", f"d{number}-{claim}")
            scene.pod_resources.claimed.append(device)
    yield
    while sum("/resourceclaims/" in each.path for each in scene.api.requests) < 400:
        scene.agent.verify_running()
        await asyncio.sleep(0.1)


def _claiming(number: int) -> Callable[[], bytes]:
    claims = b",".join(b'{"name":"c%d","resourceClaimName":"claim-%d-%d"}' % (n, number, n) for n in range(4))
    using = b",".join(b'{"name":"c%d"}' % n for n in range(4))
    container = b'{"name":"c","resources":{"claims":[%b]}}' % using
    return lambda: (
        b'{"metadata":{"name":"claiming-%d","namespace":"n","uid":"uid-claiming-%d","resourceVersion":"1"},"spec":'
        b'{"containers":[%b],"resourceClaims":[%b]},"status":{"phase":"Running"}}' % (number, number, container, claims)
    )


def _claim(name: str, uid: str) -> Callable[[], bytes]:
    metadata = b'{"name":"%b","namespace":"n","uid":"uid-%b","resourceVersion":"1"}' % (name.encode(), name.encode())
    reserved = b'[{"resource":"pods","name":"p","uid":"%b"}]' % uid.encode()
    results = b",".join(
        b'{"request":"r","driver":"d0.example.com","pool":"p0","device":"d%d"}' % number for number in range(32)
    )
    status = b'{"reservedFor":%b,"allocation":{"devices":{"results":[%b]}}}' % (reserved, results)
    return lambda: b'{"metadata":%b,"spec":{"x":"%b"},"status":%b}' % (metadata, _filler(1_000_000), status)


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
    pods_of_any_size,
    names_of_variables,
    containers_of_pods,
    a_pod_that_changes_without_end,
    configurations_of_other_nodes,
    configurations_of_the_node,
    slices_of_drivers,
    statuses_of_node_devices,
    claims_of_pods,
)
