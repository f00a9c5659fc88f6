"""`kubectl nodedevice check`: checks an installation, and prints a table. Reads only."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import click
from nodedevice_kube.api_errors import ApiError, Forbidden, NotFound
from nodedevice_kube.fields import number_of, text_of
from nodedevice_kube.paths import LEASES, PODS

from kubectl_nodedevice import __version__, checks
from kubectl_nodedevice.api import APPS, CONFIGS, CORE, DRA, NODE_DEVICES, POD_DEVICES, if_readable, path_of
from kubectl_nodedevice.checks import Refusal, Result
from kubectl_nodedevice.cluster import AGENTS_NAMESPACE, SYSTEM_NAMESPACE, Lease, NodeDevice, Object, Pod
from kubectl_nodedevice.errors import FINE, NEEDS_YOU
from kubectl_nodedevice.output import Cell, Table
from kubectl_nodedevice.reading import OPERATOR_LEASE, Reader
from kubectl_nodedevice.records import record_of
from kubectl_nodedevice.session import Command, Session, current
from kubectl_nodedevice.styles import BAD, GOOD, WARN
from kubectl_nodedevice.summaries import Summary, summaries_of
from kubectl_nodedevice.why.kinds import Event, Slice

T = TypeVar("T")
_KINDS: Final = tuple(f"{plural}.nodedevice.io" for plural in (CONFIGS, NODE_DEVICES, POD_DEVICES))
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_OURS: Final = {
    "labelSelector": "app.kubernetes.io/name=nodedevice,app.kubernetes.io/component in (agent,operator,scheduler,extender)"
}
_CREATIONS: Final = {"fieldSelector": "reason=FailedCreate"}
_OPERATOR: Final = "nodedevice-operator"
_RELEASE: Final = "nodedevice.io/release"
_POLL_SECONDS: Final = 1.0
# parts that are named while the command waits for them
_NAMED: Final = 5
_MARKS: Final = {True: Cell("ok", GOOD), False: Cell("NO", BAD), None: Cell("?", WARN)}


@click.command(cls=Command)
@click.option("--leases-namespace", default=AGENTS_NAMESPACE, metavar="NAME", help="Namespace of the agents' Leases.")
@click.option(
    "--daemon-set",
    "daemon_sets",
    multiple=True,
    default=["nodedevice-agent"],
    metavar="NAME",
    help="DaemonSet of the agents, if one exists; once for each pool.",
)
@click.option(
    "--wait-seconds",
    type=click.FloatRange(0, 3600),
    default=60.0,
    help="How long to wait for everything to become ready; 0 checks once; default 60.",
)
@click.pass_context
def check(context: click.Context, leases_namespace: str, daemon_sets: tuple[str, ...], wait_seconds: float) -> int:
    """Whether CRDs, operator, agents and NodeDevices are ready.

    -n: the operator's namespace, else nodedevice-system; in a pod of the release its own.
    """
    session = current(context)
    found = _Checks(session, session.flags.namespace or _release_namespace(session), leases_namespace, daemon_sets)
    results = _until_good(session, found, wait_seconds)
    if session.screen.is_for_machines:
        session.screen.data("CheckReport", {"items": [_data(each) for each in results]})
    else:
        table = Table(("", "WHAT", "NAME", "DETAILS"))
        for each in results:
            table.add(_MARKS[each.is_good], each.what, each.name or "-", each.details)
        session.screen.table(table)
    return FINE if all(each.is_good for each in results) else NEEDS_YOU


def _release_namespace(session: Session) -> str:
    """A pod of the release runs in its namespace; the namespace of a person's context means nothing here."""
    return session.login.namespace if session.login.account else SYSTEM_NAMESPACE


def _until_good(session: Session, found: "_Checks", wait_seconds: float) -> list[Result]:
    """Return the results when all are good or the time is over. An unavailable API server is waited for as well."""
    give_up_at = time.monotonic() + wait_seconds
    is_reported = False
    while True:
        try:
            results = found.all()
        except ApiError as exc:
            if not exc.is_temporary or time.monotonic() >= give_up_at:
                raise
            waits_for = exc.problem
        else:
            bad = [each for each in results if each.is_good is False]
            if not bad or time.monotonic() >= give_up_at:
                return results
            waits_for = _few(bad)
        if not is_reported:
            session.screen.note(f"waiting up to {give_up_at - time.monotonic():.0f} s for {waits_for}")
            is_reported = True
        time.sleep(_POLL_SECONDS)


def _few(bad: Sequence[Result]) -> str:
    named = [f"{each.what} {each.name}".rstrip() for each in bad[:_NAMED]]
    more = [f"{len(bad) - _NAMED} more"] if len(bad) > _NAMED else []
    return ", ".join(named + more)


def _data(result: Result) -> dict[str, Any]:
    state = {True: "Good", False: "Bad", None: "NotSeen"}[result.is_good]
    return {"what": result.what, "name": result.name, "state": state, "message": result.details}


class _Checks:
    """Runs all checks, and remembers the Leases as first seen."""

    def __init__(self, session: Session, namespace: str, leases_namespace: str, daemon_sets: Sequence[str]) -> None:
        self._reader = Reader(session.api, session.screen)
        self._api = session.api
        self._namespace, self._leases_namespace, self._daemon_sets = namespace, leases_namespace, daemon_sets
        self._first_leader: Lease | None = None
        self._first_agents: dict[str, Lease] = {}

    def all(self) -> list[Result]:
        kinds = [self._seen("kind", name, partial(self._kind, name)) for name in _KINDS]
        sets = [found for name in self._daemon_sets if (found := self._daemon_set(name)) is not None]
        refused = [*self._refused_deployments(), *self._refused_agents(sets)]
        names = {each.name for each in refused}
        programs = [
            *self._seen("operator", "", partial(self._operator, _OPERATOR in names)),
            *self._seen("agents", "", partial(self._agents, sets, not names.isdisjoint(self._daemon_sets))),
        ]
        found = [*(each for one in kinds for each in one), *programs]
        found += checks.of_refusals(refused, self._namespace, self._reader.now)
        if not all(each.is_good for each in programs):
            found += self._pods()
        if not any(each.is_good is False for one in kinds for each in one):
            found += self._seen("NodeDevices", "", self._node_devices)
        return found + self._shared_slices()

    def _seen(self, what: str, name: str, read: Callable[[], list[Result]]) -> list[Result]:
        """Report what the person may not see, and go on with the other checks."""
        try:
            return read()
        except Forbidden as exc:
            return [Result(what, name, None, f"{exc.problem}; {exc.remedy}")]

    def _kind(self, name: str) -> list[Result]:
        try:
            found = self._api.get(f"customresourcedefinitions {name}", f"{_CRDS}/{name}")
        except NotFound:
            details = (
                "is missing: install it with helm upgrade, or as an administrator with nodedevice-operator crds apply"
            )
            return [Result("kind", name, False, details)]
        conditions = {each.type: each.status for each in record_of(Object, found).conditions.values()}
        release = text_of(found, "metadata", "annotations", _RELEASE)
        return [checks.of_kind(name, conditions, release, __version__)]

    def _operator(self, is_refused: bool) -> list[Result]:
        lease = self._reader.lease(self._namespace, OPERATOR_LEASE)
        self._first_leader = self._first_leader or lease
        return [checks.of_operator(lease, self._first_leader, self._reader.now, is_refused)]

    def _agents(self, sets: Sequence[Any], is_refused: bool) -> list[Result]:
        found = self._api.records(Lease, "leases", LEASES.path(namespace=self._leases_namespace))
        leases = {each.meta.name: each for each in found}
        self._first_agents = leases | self._first_agents
        desired = sum(number_of(each, "status", "desiredNumberScheduled") for each in sets) if sets else None
        return checks.of_agents(leases, self._first_agents, self._reader.now, desired, is_refused)

    # -- explanations, left out if they may not be read --------------------------------------------

    def _daemon_set(self, name: str) -> Any:
        path = path_of(APPS, "daemonsets", name, self._namespace)
        return if_readable(lambda: self._api.get(f"daemonsets {name}", path))

    def _refused_deployments(self) -> list[Refusal]:
        """Read the condition that Kubernetes removes when the problem is over."""
        deployments = self._listed(
            "deployments", path_of(APPS, "deployments", namespace=self._namespace), Object, _OURS
        )
        return checks.refused_deployments(deployments)

    def _refused_agents(self, sets: Sequence[Any]) -> list[Refusal]:
        """Read Events if a DaemonSet lacks pods, as a DaemonSet has no such condition."""
        lacking = [each for each in sets if checks.lacks_pods(each)]
        path = path_of(CORE, "events", namespace=self._namespace)
        return checks.refused_daemon_sets(lacking, self._listed("events", path, Event, _CREATIONS)) if lacking else []

    def _pods(self) -> list[Result]:
        return checks.of_pods(self._listed("pods", PODS.path(namespace=self._namespace), Pod, _OURS))

    def _shared_slices(self) -> list[Result]:
        slices = self._listed(
            "resourceslices", path_of(DRA, "resourceslices"), Slice, {"fieldSelector": "spec.nodeName="}
        )
        return checks.of_shared_slices((each.driver, len(each.devices)) for each in slices)

    def _listed(self, kind: str, path: str, form: type[T], query: Mapping[str, str]) -> list[T]:
        objects = self._api.records(form, kind, path, query)
        return if_readable(lambda: list(objects)) or []

    # -- NodeDevices --------------------------------------------------------------------------------------------------------

    def _node_devices(self) -> list[Result]:
        rows = [*summaries_of(self._reader.rows(NODE_DEVICES))]
        whole = self._whole(rows)
        messages = {name: each.condition("Ready").message for name, each in whole.items()}
        return [*checks.of_summaries(rows, messages), *checks.of_delivery(whole.values())]

    def _whole(self, rows: Sequence[Summary]) -> dict[str, NodeDevice]:
        """Read NodeDevices that are not Ready, and some others: the delivery is the same on most nodes."""
        ordered = sorted(rows, key=lambda each: not each.is_unready)[: checks.MOST_LISTED]
        found: dict[str, NodeDevice] = {}
        for each in ordered:
            try:
                found[each.name] = self._reader.node_device(each.name)
            except NotFound:
                continue
        return found
