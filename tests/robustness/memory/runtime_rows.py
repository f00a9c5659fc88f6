"""What comes from the container runtime and from files of the host: running containers, and CDI specifications."""

from collections.abc import AsyncGenerator
from typing import Final, cast

from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.nri_runtime import LargeContainers
from tests.fakes.played_api.kinds import CLAIMS, PODS, SLICES
from tests.fakes.played_api.store import Made
from tests.fakes.pod_resources import ClaimedDevice
from tests.robustness.memory.scene import NODE, Scene

_CONTAINERS: Final = 250
_CREATED: Final = 60
# a ConfigMap of 1 MiB may be the environment of each container
_OCTETS: Final = 1_250_000
# of short ones there are most
_VARIABLE: Final = 8
_SPECIFICATIONS: Final = 512
_SPECIFICATION_OCTETS: Final = 16_000
_FILES_OF_DEVICE: Final = 600


async def running_containers(scene: Scene) -> AsyncGenerator[None, None]:
    """All are shown when the agent connects; then more are created."""
    containers = LargeContainers(_CONTAINERS, _OCTETS, _VARIABLE)
    scene.runtime.containers = cast(list[api_pb2.Container], containers)
    # a message of NRI has 4 MiB
    scene.runtime.per_message = 2
    scene.runtime.request_timeout_ms = 600_000
    yield
    await scene.agent.until_logged("runtime synchronized")
    plugin = await scene.runtime.plugin()
    for number in range(_CREATED):
        pod = api_pb2.PodSandbox(id=f"sandbox-{number}", uid=f"pod-{number}", name=f"p{number}", namespace="n")
        made = containers[number]
        made.id = f"created-{number}"
        assert await plugin.create_container(pod, made) == api_pb2.ContainerAdjustment()
        await plugin.container_event("PostStartContainer", pod, made)


async def cdi_specifications(scene: Scene) -> AsyncGenerator[None, None]:
    """As many files as are read, with all the bytes that are read; aliases repeat the device files of each device.

    They are read as a DRA driver and a plugin of the agent could offer the same device.
    """
    folder = scene.host_root / "var/run/cdi"
    folder.mkdir(parents=True)
    for number in range(_SPECIFICATIONS):
        (folder / f"s{number:03}.yaml").write_bytes(_specification(number))
    scene.api.serve(SLICES, CLAIMS)
    scene.api.put(SLICES, Made("", "of-cdi", _slice))
    scene.api.put(PODS, Made("n", "of-cdi", _pod))
    claimed = ClaimedDevice("n", "of-cdi", "c", "claim", "cdi.example.com", "p", "d", cdi="v0.example.com/c=d0")
    scene.pod_resources.claimed.append(claimed)
    simulated = {"resourceName": "beside-cdi.example.com/r", "count": 1}
    plugins = scene.settings["plugins"]
    plugins["simulated"] = [*plugins.get("simulated", []), simulated]
    yield
    await scene.agent.until_logged("CDI specification cannot be read", _SPECIFICATIONS - 8)


def _specification(number: int) -> bytes:
    nodes = b",".join(b"{path: /%d}" % index for index in range(_FILES_OF_DEVICE))
    head = b"cdiVersion: 0.6.0\nkind: v%d.example.com/c\ncontainerEdits: {deviceNodes: &n [%b]}\ndevices:\n" % (
        number,
        nodes,
    )
    device = b"- {name: d%d, containerEdits: {deviceNodes: *n}}\n"
    count = (_SPECIFICATION_OCTETS - len(head)) // (len(device) + 2)
    return head + b"".join(device % index for index in range(count))


def _slice() -> bytes:
    return (
        b'{"metadata":{"name":"of-cdi","uid":"uid-of-cdi","resourceVersion":"1"},"spec":{"nodeName":"%b",'
        b'"driver":"cdi.example.com","pool":{"name":"p","generation":1,"resourceSliceCount":1},"devices":[{"name":"d"}]}}'
    ) % NODE.encode()


def _pod() -> bytes:
    return (
        b'{"metadata":{"name":"of-cdi","namespace":"n","uid":"uid-of-cdi","resourceVersion":"1"},"spec":{"containers":'
        b'[{"name":"c","resources":{"claims":[{"name":"c"}]}}],"resourceClaims":[{"name":"c","resourceClaimName":"claim"}]},'
        b'"status":{"phase":"Running","conditions":[{"type":"PodReadyToStartContainers","status":"True"}]}}'
    )


ROWS: Final = (running_containers, cdi_specifications)
