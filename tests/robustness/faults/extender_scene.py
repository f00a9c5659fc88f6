"""A Node with GPUs, and pods that want parts of them: what kube-scheduler asks the extender, and what that binds.

In a round the Node's GPU shrinks and grows, a pod is refused and fits, and one is bound and goes.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.cluster.api import Pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.fakes.fault_proxy import FaultProxy
from tests.integration.extender.extender_process import ExtenderProcess, GpuNode, make_pod, placed
from tests.integration.operator_process import delete
from tests.integration.product_process import ProductProcess
from tests.robustness.faults.trial import wait_pages

# parts of the GPU, and of one that shrank; what pods want. What one had that is gone is given back some seconds later.
_MOST, _FEW = 512, 50
_MANY, _ONE = 100, 1
# what a request may end with while a call fails: no answer, or half of one
_NO_ANSWER = (OSError, json.JSONDecodeError)


class ExtenderScene:
    """Everything around one extender; use `extender_scene`."""

    def __init__(
        self,
        control_plane: ControlPlane,
        proxy: FaultProxy,
        namespace: str,
        extender: ExtenderProcess,
        node: GpuNode,
    ) -> None:
        self._control_plane, self._proxy, self._namespace = control_plane, proxy, namespace
        self._extender, self._node = extender, node
        self._rounds = 0

    @property
    def program(self) -> ProductProcess:
        return self._extender

    async def round(self) -> None:
        """Raises TimeoutError, which says what did not happen."""
        await asyncio.to_thread(self._round)

    def _round(self) -> None:
        self._rounds += 1
        self._proxy.cut()
        one, many = self._pod("one", _ONE), self._pod("many", _MANY)
        for parts in (_FEW, _MOST):
            self._node.settle_parts(parts)
            self._wait_fits(many, parts == _MOST)
        wait_until(lambda: self._is_bound(one), "the pod is bound")
        assert placed(self._control_plane, one)[0] == self._node.name
        for pod in (one, many):
            delete(self._control_plane.client, Pod, pod.metadata.name, self._namespace)
        wait_pages(self._extender.get)

    def _pod(self, name: str, parts: int) -> Any:
        return make_pod(self._control_plane, self._namespace, f"{self._node.name}-{self._rounds}-{name}", parts)

    def _wait_fits(self, pod: Any, does: bool) -> None:
        def is_so() -> bool:
            with contextlib.suppress(*_NO_ANSWER):
                body = {"Pod": pod.to_dict(), "NodeNames": [self._node.name]}
                status, answer = self._extender.call("filter", body)
                return status == HTTPStatus.OK and not answer.get("Error") and bool(answer.get("NodeNames")) == does
            return False

        wait_until(is_so, f"{pod.metadata.name} fits: {does}")

    def _is_bound(self, pod: Any) -> bool:
        """As kube-scheduler does: the same bind again where it failed."""
        with contextlib.suppress(*_NO_ANSWER):
            status, answer = self._extender.bind(pod, self._node.name)
            return status == HTTPStatus.OK and not answer["Error"]
        return False


@contextlib.contextmanager
def extender_scene(
    control_plane: ControlPlane, proxy: FaultProxy, namespace: str, folder: Path
) -> Iterator[ExtenderScene]:
    """A scene with an extender that is active; all of it ends with the block."""
    extender = ExtenderProcess(control_plane, folder)
    # with a token: the proxy passes no client certificate on
    extender.reach_by(proxy.url, namespace)
    proxy.lead(control_plane.service_account_kubeconfig(namespace, "extender", folder / "kubeconfig"))
    with contextlib.closing(extender), GpuNode(control_plane) as node:
        node.settle_parts(_MOST)
        extender.launch()
        extender.wait_active()
        try:
            yield ExtenderScene(control_plane, proxy, namespace, extender, node)
        finally:
            node.remove_parts()
