"""What is waited for before capacity is written: the policy where it can be kept, and nothing where it cannot be had at all."""

import asyncio
import logging

import pytest
from nodedevice_api import names
from nodedevice_operator.requiredplugins.policy import BINDINGS, POLICIES, Spec, binding_spec, policy_spec

from tests.fakes.operator.operator_model import GPU, NIC, node_device
from tests.fakes.polling import until
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.requiredplugins.bench import ADVERTISED, RECORD, Bench, Objects, advertised_as, reported

pytestmark = virtual_time


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
    kubelets = node_device(node="of-the-kubelet", delivery="kubelet")
    bench = Bench(Objects(), records=(*records, kubelets, node_device(node="new", delivery="nri")))
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
        await bench.until_in_force()
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
async def test_while_a_newer_policy_is_refused_what_the_stored_one_guards_stays_guarded(
    was_restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    objects = Objects()
    newer = (ADVERTISED, node_device(NIC, delivery="nri"))
    bench = Bench(objects, marks=True, records=(ADVERTISED,))
    bench.waiting.may_end.set()
    async with bench:
        await bench.until_written()
        await bench.until_in_force()
        if not was_restarted:
            objects.refuses = True
            bench.keeper.cache.node_devices.put(newer[1])
            bench.keeper.wake()
            await until(lambda: bool(reported(caplog, "policy cannot be written")))
            # the watch ends now and then, and the policy is read again
            objects.cut()
            await until(lambda: objects.reads > 2)
            assert bench.keeper.unguarded(newer) == {NIC: names.Reason.POLICY_PENDING}
            return
    objects.refuses = True
    again = Bench(objects, marks=True, records=newer)
    again.waiting.may_end.set()
    async with again:
        await until(lambda: bool(reported(caplog, "policy cannot be written")))
        again.settle()
        await until(lambda: again.keeper.unguarded(newer) == {NIC: names.Reason.POLICY_PENDING})


async def test_a_default_that_the_api_server_adds_is_not_undone() -> None:
    bench = Bench(Objects())
    bench.objects.default = {"aDefaultOfTomorrow": 1}
    async with bench:
        await bench.until_written()
        await bench.until_in_force()
        # each was applied, and replaced once, as others might have added that
        writes = bench.objects.writes
        for _ in range(3):
            bench.settle()
            await asyncio.sleep(60)
        assert (writes, bench.objects.writes) == (4, 4)


async def test_a_name_left_out_is_reported_with_its_reason_and_once_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(Objects(), records=(RECORD, node_device(NIC, delivery="nri")))
    bench.keeper.patterns = (GPU,)
    async with bench:
        await bench.until_written()
        await bench.until_in_force()
        assert bench.keeper.unguarded([node_device(NIC, delivery="nri")]) == {NIC: names.Reason.NAME_EXCLUDED}
    [line] = reported(caplog, "resource names are left out")
    assert line.__dict__["resource_names"] == [NIC]


async def test_a_standby_writes_nothing() -> None:
    bench = Bench(Objects(), leads=False)
    async with bench:
        await asyncio.sleep(60)
    assert bench.objects.specs == {}
