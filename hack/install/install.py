"""`make install`: installs the working tree in the cluster of the current kubeconfig, and waits for the first
NodeDevice.

It determines and prints its actions first, and changes nothing until then, and nothing if there is an obstacle.
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.install import facts, given_values, images, machine, nodes, owners, route, texts, values
from hack.install.arguments import Arguments
from hack.install.cluster import KINDS, Cluster, own_release, values_file
from hack.install.errors import InstallError
from hack.install.images import Image, Wanted
from hack.install.rollout import Rollout, rollout
from hack.install.route import Route
from hack.install.steps import Steps
from hack.release import chart
from tests.cluster.waiting import wait_until

_OLDEST_MINOR: Final = 34
# after all agents run: later, no new devices are expected
_SETTLE_SECONDS: Final = 20.0
_EVERY_SECONDS: Final = 0.5


@dataclass(frozen=True)
class Plan:
    """The next actions. files: of values, the later ones win. is_new: no release exists yet."""

    route: Route
    wanted: Wanted
    images: dict[str, Image]
    files: tuple[Path, ...]
    is_new: bool


def install(arguments: Arguments, steps: Steps) -> None:
    """Raises InstallError, ReleaseError or ClusterError."""
    _check(arguments)
    with tempfile.TemporaryDirectory(prefix="nodedevice-") as scratch:
        with steps.timed("plan"):
            cluster = Cluster(Path(scratch), steps.say, is_plan=arguments.is_plan)
            plan = _plan(cluster, arguments, Path(scratch), steps)
        if arguments.is_plan:
            steps.say("nothing was changed, as PLAN=1 asks for the plan alone")
            return
        with steps.timed("images"):
            images.build(plan.images, plan.wanted, steps.say)
        if _is_there(cluster, arguments, plan, Path(scratch)):
            steps.say(f"nothing to change: all of it runs as it would be installed, {steps.summary}")
        else:
            _carry_out(cluster, arguments, plan, Path(scratch), steps)
        table = cluster.kubectl("get", "nodedevices")
        devices = cluster.items("nodedevices")
    print(f"\n{texts.next_steps(table, devices, arguments.of_make)}", flush=True)


def _check(arguments: Arguments) -> None:
    """Checks without a cluster."""
    chart.check_registry(arguments.registry)
    if arguments.values is not None:
        given_values.check(arguments.values)


def _plan(cluster: Cluster, arguments: Arguments, scratch: Path, steps: Steps) -> Plan:
    """Determine the actions, and print them. Changes nothing."""
    minor, version = cluster.version()
    found = facts.nodes_of({"items": cluster.items("nodes")})
    steps.say(f"context {cluster.context}, {cluster.server}, Kubernetes {version}: {texts.nodes(found)}")
    if minor < _OLDEST_MINOR:
        raise InstallError(f"Kubernetes {version} is too old", f"it takes 1.{_OLDEST_MINOR} or newer")
    cluster.check_rights()
    listed = cluster.releases(arguments.owner)
    owners.check_alone(owners.of_releases(listed) | owners.of_workloads(cluster.labelled_workloads()), arguments.owner)
    owners.check_idle(listed)
    owners.check_kinds(cluster.items("crds", *KINDS), own_release())
    is_new = arguments.owner not in owners.of_releases(listed)
    files = _values_files(arguments, scratch, is_new)
    if cluster.has_helm:
        # a value that the chart refuses is reported before other obstacles
        cluster.planned(arguments.owner, files)
    else:
        steps.say("Helm is not on this machine: the install fetches or builds it, which checks VALUES in full")
    here = machine.facts(route.sockets(found, arguments.containerd))
    way = route.choose(found, here, arguments.registry, arguments.containerd)
    wanted = Wanted(route.architectures(found), bool(arguments.registry), arguments.builder)
    built = images.of_the_tree(wanted)
    _say(arguments, Plan(way, wanted, built, files, is_new), steps)
    return Plan(way, wanted, built, files, is_new)


def _say(arguments: Arguments, plan: Plan, steps: Steps) -> None:
    for image in plan.images.values():
        state = "built already" if image.is_built else "to be built"
        steps.say(f"image {image.program}:{image.tag} for {' and '.join(plan.wanted.architectures)}: {state}")
    steps.say(f"to the nodes by {plan.route.name}")
    steps.say(f"{'new: ' if plan.is_new else ''}{arguments.owner}")
    if plan.is_new and arguments.values is None:
        steps.say(
            f"to begin with it offers {values.FIRST_RESOURCE}, /dev/fuse for four pods a node; VALUES=FILE: others"
        )


def _values_files(arguments: Arguments, scratch: Path, is_new: bool) -> tuple[Path, ...]:
    if arguments.values is not None:
        return (arguments.values,)
    return (values_file(values.at_first(), scratch / "first.json"),) if is_new else ()


def _images_file(scratch: Path, named: dict[str, values.Named], way: Route) -> Path:
    return values_file(values.of_images(named, way.registry), scratch / "images.json")


def _is_there(cluster: Cluster, arguments: Arguments, plan: Plan, scratch: Path) -> bool:
    """Whether the cluster already has all of the plan, running on every node."""
    if plan.is_new:
        return False
    named = nodes.named_by(plan.route, plan.images)
    deployed = cluster.release(arguments.owner)
    planned = cluster.planned(arguments.owner, [*plan.files, _images_file(scratch, named, plan.route)])
    if not values.is_unchanged(deployed, planned) or len(cluster.items("crds", *KINDS)) < len(KINDS):
        return False
    return _state(cluster, arguments).is_complete and not cluster.differs(str(deployed["manifest"]))


def _carry_out(cluster: Cluster, arguments: Arguments, plan: Plan, scratch: Path, steps: Steps) -> None:
    with steps.timed("to the nodes"):
        named = nodes.bring(plan.route, plan.images, steps.say)
    steps.say("helm upgrade --install")
    with steps.timed("helm"):
        cluster.upgrade(arguments.owner, [*plan.files, _images_file(scratch, named, plan.route)])
    steps.say("waiting for the first NodeDevice")
    with steps.timed("agents"):
        state = _wait(cluster, arguments, steps)
    agents = f"{state.ready} of {state.wanted} agents run"
    if state.devices:
        steps.say(f"{state.devices[0]} is published, {agents}, {steps.summary}")
    else:
        steps.say(f"{agents}, {steps.summary}; no NodeDevice exists, as no built-in plugin is set")


def _state(cluster: Cluster, arguments: Arguments) -> Rollout:
    workloads = [each for each in cluster.labelled_workloads() if each["metadata"]["namespace"] == arguments.namespace]
    pods = cluster.items("pods", "-n", arguments.namespace, "-l", "app.kubernetes.io/name=nodedevice")
    return rollout(workloads, pods, cluster.items("nodedevices"))


def _wait(cluster: Cluster, arguments: Arguments, steps: Steps) -> Rollout:
    """Wait for the first NodeDevice, or until no plugin offers devices. Raises InstallError with the missing parts."""
    watched = _Watched(cluster, arguments, steps)
    try:
        wait_until(watched.is_done, "the first NodeDevice", arguments.timeout_seconds, _EVERY_SECONDS)
    except TimeoutError as exc:
        missing: Sequence[str] = watched.state.missing if watched.state else ()
        raise InstallError(
            f"no NodeDevice within {arguments.timeout_seconds:.0f} s ({'; '.join(missing) or 'agents publish none'})",
            f"see `kubectl get pods,events --namespace {arguments.namespace}`; repeat the command to continue",
        ) from exc
    assert watched.state is not None
    return watched.state


class _Watched:
    """Polls the state, and prints the missing parts when they change."""

    def __init__(self, cluster: Cluster, arguments: Arguments, steps: Steps) -> None:
        self.state: Rollout | None = None
        self._cluster, self._arguments, self._steps = cluster, arguments, steps
        self._complete_since: float | None = None
        self._shown: set[str] = set()

    def is_done(self) -> bool:
        self.state = state = _state(self._cluster, self._arguments)
        for trouble in state.troubles:
            if trouble not in self._shown:
                self._shown.add(trouble)
                self._steps.say(trouble)
        return state.is_begun or self._is_settled(state)

    def _is_settled(self, state: Rollout) -> bool:
        """Whether all agents have run for a while, so that no change is expected."""
        if not state.is_complete:
            self._complete_since = None
            return False
        now = time.monotonic()
        self._complete_since = now if self._complete_since is None else self._complete_since
        return now - self._complete_since >= _SETTLE_SECONDS
