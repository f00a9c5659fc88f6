"""What is waited for before capacity is written: the policy where it can be kept, and nothing where it cannot be had at all."""

import asyncio
import logging
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
from nodedevice_api import names
from nodedevice_operator import errors
from nodedevice_operator.errors import ApiError, Forbidden, Invalid, Unauthorized, Unavailable, Unreachable
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, StoredCondition
from nodedevice_operator.observability.events import WARNING, EventReason
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.requiredplugins import policy
from nodedevice_operator.requiredplugins import watch as policy_watch
from nodedevice_operator.requiredplugins.annotate_pods import PodAnnotator, UnboundPodsApi
from nodedevice_operator.requiredplugins.controller import RequiredPluginsController, _contended
from nodedevice_operator.requiredplugins.pending_pods import AnnotationFailure
from nodedevice_operator.requiredplugins.policy import (
    BINDINGS,
    POLICIES,
    SETTLE_SECONDS,
    Spec,
    binding_spec,
    policy_spec,
)
from nodedevice_operator.requiredplugins.watch import PolicyWatch, RequiredPluginsApi
from nodedevice_operator.workqueue import WorkQueue

from tests.fakes.operator.collaborators import RecordingRecorder, open_fence, running
from tests.fakes.operator.node_status import NodeStatusModel
from tests.fakes.operator.operator_model import GPU, NIC, node_device
from tests.fakes.polling import until
from tests.fakes.virtual_time import virtual_time

pytestmark = virtual_time

RECORD = node_device(runtime="nri")


def advertised_as(status: str, reason: str, node: str = "node-a") -> NodeDeviceRecord:
    conditions = {names.Condition.ADVERTISED: StoredCondition(status, reason, "", "then", 1)}
    return node_device(node=node, runtime="nri", conditions=conditions)


ADVERTISED = advertised_as("True", names.Reason.ADVERTISED)


class Objects(RequiredPluginsApi):
    """The two objects in memory; `refuses` reports no to every write, `hides` is what every read fails with.

    hides_all: what the question fails with whether there are any.
    """

    def __init__(
        self,
        *,
        is_served: bool = True,
        refuses: bool = False,
        hides: ApiError | None = None,
        hides_all: ApiError | None = None,
    ) -> None:
        self.is_served, self.refuses, self.hides, self.hides_all = is_served, refuses, hides, hides_all
        self.reads = self.writes = 0
        # what the API server adds to each spec
        self.default: Spec = {}
        self.cut = asyncio.Event()
        self.specs: dict[str, Spec] = {}

    async def served(self) -> frozenset[str]:
        if self.hides_all is not None:
            raise self.hides_all
        return frozenset({POLICIES, BINDINGS}) if self.is_served else frozenset({"validatingadmissionpolicies"})

    async def read(self, kind: str) -> tuple[Spec | None, str]:
        self.reads += 1
        if self.hides is not None:
            raise self.hides
        return self.specs.get(kind), "1"

    async def apply(self, kind: str, spec: Spec) -> Spec:
        if self.refuses:
            raise Forbidden("patch", kind, "an admission policy says no", 403)
        self.writes += 1
        self.specs[kind] = {**spec, **self.default}
        return self.specs[kind]

    async def replace(self, kind: str, spec: Spec) -> Spec:
        return await self.apply(kind, spec)

    async def follow(self, kind: str, version: str) -> AsyncIterator[Spec | None]:
        await self.cut.wait()
        return
        yield None


class Annotator(PodAnnotator):
    """Finds no pods; every check at names that are due waits until it `may_end`."""

    def __init__(self, *, is_on: bool) -> None:
        super().__init__(UnboundPodsApi.__new__(UnboundPodsApi), is_on=is_on)
        self.checked_for: list[frozenset[str]] = []
        self.may_end = asyncio.Event()

    async def _annotate(self, resources: frozenset[str]) -> list[AnnotationFailure]:
        self.checked_for.append(resources)
        await self.may_end.wait()
        return []


class Bench:
    def __init__(
        self,
        objects: Objects,
        *,
        is_on: bool = True,
        leads: bool = True,
        marks: bool = False,
        records: tuple[NodeDeviceRecord, ...] = (RECORD,),
    ) -> None:
        self.now = 1000.0
        cache = Cache()
        cache.nodes.replace([NodeStatusModel(record.node).record() for record in records], 1)
        cache.pod_devices.replace([], 1)
        cache.node_devices.replace(records, 1)
        self.objects, self.enqueued = objects, set[str]()
        queue = WorkQueue(Metrics())
        # only recorded: no worker takes from this queue
        queue.enqueue = self.enqueued.add  # type: ignore[method-assign, assignment]
        fence = open_fence()
        if not leads:
            fence.close()
        self.waiting = Annotator(is_on=marks)
        self.recorder = RecordingRecorder()
        self.keeper = RequiredPluginsController(
            objects,
            self.waiting,
            cache,
            queue,
            Metrics(),
            fence,
            self.recorder,
            is_on=is_on,
            clock=lambda: self.now,
        )

    @property
    def unguarded(self) -> frozenset[str]:
        return frozenset(self.keeper.unguarded([RECORD]))

    async def until_written(self) -> None:
        """Wait until both objects are there."""
        await until(lambda: self.objects.specs.keys() == {POLICIES, BINDINGS})

    def settle(self) -> None:
        """Let the policy be in force."""
        self.now += SETTLE_SECONDS
        self.keeper.wake()

    async def __aenter__(self) -> None:
        self._running = running(self.keeper.work(), self.keeper.watch(POLICIES), self.keeper.watch(BINDINGS))
        await self._running.__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await self._running.__aexit__(None, None, None)


def reported(caplog: pytest.LogCaptureFixture, begin: str) -> list[logging.LogRecord]:
    """What was logged that begins so."""
    return [record for record in caplog.records if record.message.startswith(begin)]


CANNOT_READ, CAN_READ = "policy cannot be read", "policy can be read again"


async def test_a_name_waits_until_the_policy_has_settled() -> None:
    bench = Bench(Objects())
    assert bench.unguarded == {GPU}
    async with bench:
        await bench.until_written()
        assert bench.unguarded == {GPU}
        bench.settle()
        await until(lambda: bench.enqueued == {"node-a"})
        assert bench.unguarded == frozenset()


async def test_a_name_waits_until_pods_that_ask_for_it_already_are_marked() -> None:
    bench = Bench(Objects(), marks=True)
    async with bench:
        await bench.until_written()
        # not before the policy is in force: what is admitted again by then would not be marked
        assert bench.waiting.checked_for == []
        bench.settle()
        await until(lambda: bench.waiting.checked_for == [{GPU}])
        assert bench.unguarded == {GPU}
        bench.waiting.may_end.set()
        await until(lambda: bench.enqueued == {"node-a"})
        assert bench.unguarded == frozenset()


async def test_only_nodes_that_waited_for_the_policy_are_checked_at() -> None:
    """Who is refused is checked at again after longer and longer: each check is one more write."""
    conditions = {
        "refused-1": ("False", names.Reason.UPDATE_REFUSED),
        "refused-2": ("False", names.Reason.WRITE_REFUSED),
        "there": ("True", names.Reason.ADVERTISED),
        "waits": ("False", names.Reason.POLICY_PENDING),
    }
    records = [advertised_as(status, reason, node) for node, (status, reason) in conditions.items()]
    bench = Bench(Objects(), records=(*records, node_device(node="new", runtime="nri")))
    async with bench:
        await bench.until_written()
        bench.settle()
        # the last one that a check comes to
        await until(lambda: "new" in bench.enqueued)
    assert bench.enqueued == {"waits", "new"}


@pytest.mark.parametrize(("was_kept", "times"), [(True, 0), (False, 1)])
async def test_after_a_restart_pods_are_checked_only_where_the_policy_was_broken(was_kept: bool, times: int) -> None:
    objects = Objects()
    if was_kept:
        objects.specs = {POLICIES: policy_spec((GPU,)), BINDINGS: binding_spec()}
    bench = Bench(objects, marks=True, records=(ADVERTISED,))
    bench.waiting.may_end.set()
    async with bench:

        def is_guarded() -> bool:
            bench.settle()
            return bench.unguarded == frozenset()

        await until(is_guarded)
    assert len(bench.waiting.checked_for) == times


@pytest.mark.parametrize(
    ("is_served", "is_on", "why"),
    [
        pytest.param(False, True, "API server has no MutatingAdmissionPolicy v1", id="not served"),
        pytest.param(True, False, "required-plugins policy is off", id="switched off"),
    ],
)
async def test_nothing_is_waited_for_where_there_is_no_policy_and_the_log_reports_what_to_do(
    is_served: bool, is_on: bool, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench(Objects(is_served=is_served), is_on=is_on)
    async with bench:
        await until(lambda: bench.unguarded == frozenset() and bool(reported(caplog, why)))
        for _ in range(3):
            bench.keeper.wake()
            await asyncio.sleep(60)
        assert bench.keeper.lacks_policies is not is_served
        assert ("node-a" in bench.enqueued) is not is_served
    assert bench.objects.specs == {}
    assert ["docs/install.md" in str(record.__dict__["remedy"]) for record in reported(caplog, why)] == [True]


async def test_refused_is_reported_once_and_the_name_goes_on_waiting(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(Objects(refuses=True))
    async with bench:
        await until(lambda: bool(reported(caplog, "policy cannot be written")))
        for _ in range(3):
            bench.keeper.wake()
            await asyncio.sleep(60)
        bench.now += 1000
        assert bench.unguarded == {GPU}
        assert len(reported(caplog, "policy cannot be written")) == 1
        bench.objects.refuses = False
        bench.keeper.wake()
        await bench.until_written()


@pytest.mark.parametrize(
    "why",
    [
        Forbidden("GET", POLICIES, "no such role", 403),
        Invalid("GET", POLICIES, "what is that", 400),
        Unavailable("GET", POLICIES, "what is stored cannot be decoded", 500),
    ],
)
async def test_what_cannot_be_read_is_reported_and_retried(why: ApiError, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench(Objects(hides=why))
    async with bench:
        await until(lambda: bench.objects.reads >= 6)
        assert bench.unguarded == {GPU}
        lines = [line.__dict__ for line in reported(caplog, CANNOT_READ)]
        assert sorted((line["kind"], line["levelname"]) for line in lines) == [(POLICIES, "ERROR"), (BINDINGS, "ERROR")]
        assert all(why.problem in line["error"] for line in lines)
        assert all("docs/security.md" in line["remedy"] for line in lines)
        bench.objects.hides = None
        await bench.until_written()
        assert len(reported(caplog, CAN_READ)) == 2
        # what works and fails again is reported again
        bench.objects.hides = why
        bench.objects.cut.set()
        await until(lambda: len(reported(caplog, CANNOT_READ)) == 4)


async def test_it_is_reported_where_policies_cannot_be_listed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    why = Forbidden("GET", "apis", "no such role", 403)
    objects = Objects(hides_all=why)
    bench = Bench(objects)
    async with bench:
        await until(lambda: any(record.levelname == "ERROR" for record in caplog.records))
        assert bench.unguarded == {GPU}
        objects.hides_all = None
        await bench.until_written()
    (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert (line.message.partition(";")[0], line.__dict__["kind"]) == (CANNOT_READ, "apis")
    assert len(reported(caplog, CAN_READ)) == 1


async def test_what_can_no_longer_be_read_is_a_warning_and_names_stay(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(Objects())
    async with bench:
        await bench.until_written()
        bench.now += SETTLE_SECONDS
        bench.objects.hides = Forbidden("GET", POLICIES, "no such role any more", 403)
        bench.objects.cut.set()
        before = bench.objects.reads
        await until(lambda: bench.objects.reads >= before + 4)
        assert bench.unguarded == frozenset()
    lines = reported(caplog, CANNOT_READ)
    assert sorted((line.levelname, line.__dict__["kind"]) for line in lines) == [
        ("WARNING", POLICIES),
        ("WARNING", BINDINGS),
    ]


@pytest.mark.parametrize(
    "why",
    [
        Unreachable("GET", POLICIES, "nobody there"),
        Unavailable("GET", POLICIES, "later", 503),
        Unauthorized("GET", POLICIES, "a token of yesterday", 401),
    ],
)
async def test_an_unreachable_api_server_is_reported_elsewhere(why: ApiError, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(Objects(hides=why))
    async with bench:
        await until(lambda: bench.objects.reads >= 6)
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_watch_that_is_cut_again_and_again_is_reopened_as_soon() -> None:
    class Cut(Objects):
        async def follow(self, kind: str, version: str) -> AsyncIterator[Spec | None]:
            raise errors.WatchInterrupted("watch", kind, "the load balancer has closed it")
            yield None

    bench = Bench(Cut())
    async with bench:
        await asyncio.sleep(60)
    assert bench.objects.reads >= 2 * 60 / policy_watch._FIRST_DELAY_SECONDS - 2


async def test_a_watch_that_has_worked_begins_with_the_first_delay_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads fail for long, a watch works, and reads fail again."""
    first, delays = policy_watch._FIRST_DELAY_SECONDS, []
    objects, sleep = Objects(hides=Unavailable("GET", POLICIES, "later", 503)), asyncio.sleep
    objects.cut.set()

    async def recorded(seconds: float) -> None:
        delays.append(seconds)
        objects.hides = None if len(delays) == 5 else Unavailable("GET", POLICIES, "later", 503)
        await sleep(seconds)

    monkeypatch.setattr(policy_watch, "asyncio", SimpleNamespace(sleep=recorded))
    watch = PolicyWatch(objects, lambda: None, lambda: None, is_on=True)
    async with running(watch.watch(POLICIES)):
        await until(lambda: len(delays) >= 8)
    assert delays[:8] == [2 * first, 4 * first, 8 * first, 16 * first, 32 * first, first, 2 * first, 4 * first]


async def test_what_others_have_put_into_its_lists_is_removed() -> None:
    class Shared(Objects):
        async def apply(self, kind: str, spec: Spec) -> Spec:
            return await super().apply(kind, {**spec, "variables": "of another writer too"})

        async def replace(self, kind: str, spec: Spec) -> Spec:
            return await super().apply(kind, spec)

    bench = Bench(Shared())
    async with bench:
        await until(lambda: bench.objects.specs == {POLICIES: policy_spec((GPU,)), BINDINGS: binding_spec()})


@pytest.mark.parametrize("was_restarted", [False, True])
async def test_while_a_newer_policy_is_refused_what_the_stored_one_guards_stays_guarded(was_restarted: bool) -> None:
    objects = Objects()
    newer = (ADVERTISED, node_device(NIC, runtime="nri"))
    bench = Bench(objects, marks=True, records=(ADVERTISED,))
    bench.waiting.may_end.set()
    async with bench:
        await bench.until_written()
        bench.settle()
        await until(lambda: bench.unguarded == frozenset())
        if not was_restarted:
            objects.refuses = True
            bench.keeper.cache.node_devices.put(newer[1])
            bench.keeper.wake()
            await until(lambda: bench.keeper._is_failure_logged)
            # the watch ends now and then, and the policy is read again
            objects.cut.set()
            await until(lambda: objects.reads > 2)
            assert bench.keeper.unguarded(newer) == {NIC: names.Reason.POLICY_PENDING}
            return
    objects.refuses = True
    again = Bench(objects, marks=True, records=newer)
    again.waiting.may_end.set()
    async with again:
        await until(lambda: again.keeper._is_failure_logged)
        again.settle()
        await until(lambda: again.keeper.unguarded(newer) == {NIC: names.Reason.POLICY_PENDING})


@pytest.mark.parametrize(
    ("record", "is_woken"),
    [
        pytest.param(node_device(NIC, runtime="nri"), True, id="a new name"),
        pytest.param(RECORD, False, id="it is in the policy"),
        pytest.param(node_device("example.com/left-out", runtime="nri"), False, id="it is left out"),
        pytest.param(node_device(NIC, runtime="nri", endpoint="Gone"), False, id="its plugin is gone"),
        pytest.param(node_device(NIC, runtime="nri", owner_uid="uid-0"), False, id="its Node is another"),
        pytest.param(node_device(NIC), False, id="another runtime"),
    ],
)
async def test_only_a_name_that_may_come_into_the_policy_causes_a_reconcile(
    record: NodeDeviceRecord, is_woken: bool
) -> None:
    bench = Bench(Objects(), records=(RECORD, node_device("example.com/left-out", runtime="nri")))
    bench.keeper.patterns = (GPU, NIC)
    async with bench:
        await bench.until_written()
        bench.keeper._wake.clear()
        bench.keeper.on_update(record.node, None, record)
        assert bench.keeper._wake.is_set() is is_woken


async def test_a_default_that_the_api_server_adds_is_not_undone() -> None:
    bench = Bench(Objects())
    bench.objects.default = {"aDefaultOfTomorrow": 1}
    async with bench:
        await bench.until_written()
        bench.settle()
        await until(lambda: bench.unguarded == frozenset())
        # each was applied, and replaced once, as others might have added that
        writes = bench.objects.writes
        for _ in range(3):
            bench.settle()
            await asyncio.sleep(60)
        assert (writes, bench.objects.writes) == (4, 4)


async def test_a_name_left_out_is_reported_with_the_reason_and_once_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(Objects(), records=(RECORD, node_device(NIC, runtime="nri")))
    bench.keeper.patterns = (GPU,)
    async with bench:
        await bench.until_written()
        bench.settle()
        await until(lambda: bench.unguarded == frozenset())
        assert bench.keeper.unguarded([node_device(NIC, runtime="nri")]) == {NIC: names.Reason.NAME_EXCLUDED}
    [line] = reported(caplog, "resource names are left out")
    assert line.__dict__["resource_names"] == [NIC]


async def test_a_standby_writes_nothing() -> None:
    bench = Bench(Objects(), leads=False)
    async with bench:
        await until(lambda: bench.keeper._selection.names == (GPU,))
        await asyncio.sleep(60)
    assert bench.objects.specs == {}


@pytest.mark.parametrize("kind", [POLICIES, BINDINGS])
async def test_an_object_that_another_client_keeps_undoing_has_an_event_of_its_own(kind: str) -> None:
    event = _contended(kind, 61)
    about = event.about
    assert (about.api_version, about.kind) == (policy.API_VERSION, policy.KINDS[kind])
    assert (about.namespace, about.name, about.uid) == ("", policy.NAME, "")
    assert (event.type, event.reason) == (WARNING, EventReason.POLICY_CONFLICT)
    assert "written again in 61 s" in event.message
