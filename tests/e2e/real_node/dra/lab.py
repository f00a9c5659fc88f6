"""A node with a DRA driver: pods that have claims, and what is shown of the driver's devices."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nodedevice_agent.kubelet.directory import POD_RESOURCES

from hack import yaml_text
from tests.cluster.api import NodeDevice
from tests.cluster.node import kubelet
from tests.e2e.real_node.dra.driver import DraDriver
from tests.e2e.real_node.dra.holdings import Held, differences
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod
from tests.fakes.dra import pod_claims

Json = dict[str, Any]


def claiming(
    name: str,
    claims: Mapping[str, str] | None = None,
    templates: Mapping[str, str] | None = None,
    limits: Mapping[str, int] | None = None,
    also: Sequence[str] = (),
    **more: Any,
) -> Json:
    """Containers main and also these, each with all of the pod's claims. claims, templates: as in pod_claims."""
    resources = {
        "limits": {each: str(count) for each, count in (limits or {}).items()},
        "claims": [{"name": each} for each in (*(claims or ()), *(templates or ()))],
    }
    containers = [container(each, resources=resources, **more) for each in ("main", *also)]
    return pod(name, containers, resourceClaims=pod_claims(claims, templates))


class Lab:
    def __init__(self, of: NodeUnderTest, driver: DraDriver) -> None:
        self.of, self.driver = of, driver
        self.socket = of.node.outside(kubelet.ROOT) / POD_RESOURCES

    def apply(self, *objects: Json) -> None:
        self.of.control_plane.apply(yaml_text.dump_all(objects))

    def until_equal(self, said: str = "") -> None:
        """Until all say the same about which pods hold which devices. said: what a person needs to know besides.

        Raises TimeoutError with the last differences.
        """
        last: list[str] = []

        def are_equal() -> bool:
            last[:] = differences(self.of.control_plane, self.of.node.name, self.socket, self.of_ours())
            return not last

        try:
            self.of.until(are_equal, f"all say the same {said}")
        except TimeoutError as error:
            error.add_note("\n".join(last))
            raise

    def of_ours(self) -> Iterable[Held]:
        """What containers have of the agent's own devices, by their own word."""
        return ()

    def status(self, pool: str = "") -> Json:
        """Of the NodeDevice of a pool, the driver's own unless another is named; empty where there is none."""
        key = (self.driver.name, pool or self.driver.pool)
        for found in self.of.control_plane.client.list(NodeDevice):
            status: Json = found.get("status", {})
            if found["spec"]["nodeName"] == self.of.node.name and (status.get("driver"), status.get("pool")) == key:
                return status
        return {}

    def until_numbers(self, pool: str = "", **numbers: int) -> Json:
        """The status, once it has these numbers."""
        self.of.until(lambda: numbers.items() <= self.status(pool).items(), f"{numbers} are shown")
        return self.status(pool)

    def processes(self) -> list[int | None]:
        of = self.of
        return [each.pid for each in (of.node.kubelet, of.node.containerd, self.driver.process, of.agent)]

    def clear(self) -> None:
        """No pod and no claim is left."""
        self.of.remove_pods()
        kinds = "resourceclaims,resourceclaimtemplates"
        self.of.control_plane.kubectl("delete", kinds, "--all", "-n", self.of.namespace)
