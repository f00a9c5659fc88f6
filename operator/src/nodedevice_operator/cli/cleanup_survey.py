"""What a cleanup would change, read before it changes anything. Never writes."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from nodedevice_kube.api_errors import Forbidden, NotFound

from nodedevice_operator.cli.api import (
    CHECK_POD,
    CRD,
    DAEMON_SET,
    DEPLOYMENT,
    NAMESPACE,
    POD,
    SCHEDULERS,
    Leftover,
    LeftoversApi,
)
from nodedevice_operator.cli.cleanup_plan import CleanupScope, Survey, withdrawals
from nodedevice_operator.cli.command_base import Progress
from nodedevice_operator.cli.crds import NAMES
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.lists import NODES, POD_DEVICES, Cluster
from nodedevice_operator.requiredplugins.policy import BINDINGS, NAME, POLICIES
from nodedevice_operator.requiredplugins.watch import RequiredPluginsApi

if TYPE_CHECKING:
    from nodedevice_operator.cli.objects import Objects

T = TypeVar("T")


def workloads_of(scope: CleanupScope) -> list[tuple[str, str]]:
    """Kind and name of the workloads that would write removed objects again, or that Helm has not deleted."""
    deployments = [(DEPLOYMENT, name) for name in (scope.deployment, *SCHEDULERS)]
    daemon_sets = [(DAEMON_SET, name) for name in scope.daemon_sets]
    return [*deployments, *daemon_sets, (POD, CHECK_POD)]


def is_kept(left: Leftover, scope: CleanupScope) -> bool:
    return left.is_cordoned and not scope.delete_crds


async def survey(client: Client, objects: "Objects", scope: CleanupScope, progress: Progress) -> Survey:
    progress.step = "reading the objects to remove"
    cluster, leftovers = Cluster(client), LeftoversApi(client)
    policies, namespace = RequiredPluginsApi(client), scope.namespace
    found = [each for each in workloads_of(scope) if await _exists(progress, partial(objects.exists, *each, namespace))]
    nodes = await progress.retrying(partial(cluster.list_all, NODES))
    node_devices = await _listed(progress, leftovers.node_devices)
    kept = [left.metadata.name for left in node_devices if is_kept(left, scope)]
    kinds = [kind for kind in (BINDINGS, POLICIES) if await _exists(progress, partial(policies.exists, kind))]
    wanted = NAMES if scope.delete_crds else ()
    return Survey(
        workloads=tuple(found),
        pods=len(await progress.retrying(partial(leftovers.pods, namespace))),
        nodes=len(nodes),
        marked=tuple(wanted.node for _, wanted in withdrawals(nodes)),
        policies=tuple(f"{kind} {NAME}" for kind in kinds),
        pod_devices=len(await _listed(progress, partial(cluster.list_all, POD_DEVICES))),
        node_devices=len(node_devices) - len(kept),
        kept=tuple(kept),
        has_leases_namespace=await _exists(progress, partial(objects.exists, NAMESPACE, scope.leases_namespace)),
        crds=tuple([name for name in wanted if await _exists(progress, partial(objects.exists, CRD, name))]),
    )


async def _listed(progress: Progress, read: Callable[[], Awaitable[Sequence[T]]]) -> Sequence[T]:
    """All objects of a kind; none where the API server has no such kind."""
    try:
        return await progress.retrying(read)
    except NotFound:
        return ()


async def _exists(progress: Progress, read: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await progress.retrying(read)
    except Forbidden:
        # who may delete it by its name need not be allowed to read it, as the account of the chart's Job
        return True
