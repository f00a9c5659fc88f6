"""The container runtime of an agent's node: its socket, and what it shows of a pod with one container."""

from collections.abc import Mapping
from pathlib import Path

from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.nri_runtime import FakeRuntime
from tests.integration.agent_process import AgentNode


class PatientRuntime(FakeRuntime):
    """Waits for the agent's responses longer than a machine stands still; what an agent does that is late is tested in process."""

    def __init__(self, socket: Path) -> None:
        super().__init__(socket)
        self.request_timeout_ms = 600_000


def nri_socket(node: AgentNode) -> Path:
    return node.folder / "nri.sock"


def by_nri(node: AgentNode) -> dict[str, str]:
    """Flags of an agent that gives devices by this runtime."""
    return {"--delivery": "nri", "--nri-socket": str(nri_socket(node))}


def sandbox(
    uid: str, name: str = "", namespace: str = "n", annotations: Mapping[str, str] | None = None
) -> api_pb2.PodSandbox:
    return api_pb2.PodSandbox(
        id=f"s-{uid}", name=name or uid, namespace=namespace, uid=uid, annotations=dict(annotations or {})
    )


def container(uid: str, number: int = 1) -> api_pb2.Container:
    state = api_pb2.CONTAINER_RUNNING
    return api_pb2.Container(id=f"{uid}-{number}", pod_sandbox_id=f"s-{uid}", name="c0", state=state)
