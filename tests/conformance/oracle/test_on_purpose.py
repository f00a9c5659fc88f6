"""What differs on purpose and is no matter of sequences: each test shows what the kubelet does and what we do.

The docstrings' first words are the paragraph of docs/differences.md.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from nodedevice_agent.checkpoint.format import decode
from nodedevice_agent.devicemanager.records.checkpoint import CheckpointCorrupt
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.conformance.oracle.conftest import Both, Play
from tests.fakes.plugin import RpcFailure
from tests.oracle.kubelet import Kubelet, OracleError
from tests.oracle.maker import Why
from tests.oracle.ours import Ours
from tests.oracle.sides import Side
from tests.oracle.steps import Admit, Ctr, Dev, Machine
from tests.oracle.strategies import GPU

_CHECKPOINTS = Path(__file__).parents[2] / "unit" / "node_agent" / "checkpoint" / "checkpoints"
_NONE = Machine()


def _devices(count: int) -> tuple[Dev, ...]:
    return tuple(Dev(f"d{index}") for index in range(count))


def _pod(count: int) -> Admit:
    return Admit((Ctr("app", {GPU: count}),))


def _on_both_sides(devices: tuple[Dev, ...]) -> Callable[[Play], Callable[[Both], None]]:
    """A test of what happens at the kubelet's side and at ours, each with a plugin of these devices, which gives advice.

    On a machine without a topology policy.
    """

    def made(play: Play) -> Callable[[Both], None]:
        async def with_plugins(kubelet: Side, ours: Side) -> None:
            for side in (kubelet, ours):
                await side.register(GPU, devices, advice=True)
            await play(kubelet, ours)

        def test(both: Both) -> None:
            both.play(with_plugins, _NONE)

        test.__name__, test.__doc__ = play.__name__, play.__doc__
        return test

    return made


@pytest.mark.kubelet("behaviour 42", "behaviour 53", "weak spot 4")
@_on_both_sides(_devices(2))
async def test_a_waiting_pod_is_served_by_itself(kubelet: Side, ours: Side) -> None:
    """A refused pod waits: rows 42 and 53."""
    for side in (kubelet, ours):
        assert (await side.admit("first", _pod(2))).is_admitted
        assert (await side.admit("second", _pod(1))).why is Why.LACKING
        await side.end("first")
    assert not await kubelet.maker.held()
    # no event of the pod follows: what ended has made room for it
    assert isinstance(ours.maker, Ours)
    await ours.maker.served("second")
    assert await ours.maker.held() == {("second", "c0", GPU): {"d1": ()}}


@pytest.mark.kubelet("behaviour 46")
@_on_both_sides(_devices(2))
async def test_advice_that_fails_is_done_without(kubelet: Side, ours: Side) -> None:
    """Advice that fails refuses no pod: row 46."""
    for side in (kubelet, ours):
        side.plugins[GPU].knobs.preferred_error = RpcFailure()
    assert (await kubelet.admit("p", _pod(1))).why is Why.PLUGIN
    assert (await ours.admit("p", _pod(1))).is_admitted


@pytest.mark.kubelet("behaviour 49", "weak spot 2")
@_on_both_sides(_devices(2))
async def test_an_empty_answer_leaks_nothing(kubelet: Side, ours: Side) -> None:
    """Nothing leaks when an allocation fails: row 49. The kubelet keeps the devices of a pod that it has refused."""
    for side in (kubelet, ours):
        side.plugins[GPU].knobs.allocate_empty = True
        assert (await side.admit("first", _pod(2))).why is Why.PLUGIN
        await side.end("first")
        side.plugins[GPU].knobs.allocate_empty = False
    assert (await kubelet.admit("second", _pod(1))).why is Why.LACKING
    assert (await ours.admit("second", _pod(2))).is_admitted


@pytest.mark.kubelet("behaviour 20")
@_on_both_sides(_devices(1))
async def test_an_id_counts_once(kubelet: Side, ours: Side) -> None:
    """A device ID counts once: row 20."""
    twice = [api_pb2.Device(ID="d0", health=health) for health in ("Healthy", "Unhealthy")]
    for side in (kubelet, ours):
        side.plugins[GPU].knobs.raw_list = twice
        await side.update(GPU, _devices(1))
    assert await kubelet.maker.numbers() == {GPU: (2, 1)}
    assert await ours.maker.numbers() == {GPU: (1, 0)}


@_on_both_sides(_devices(1))
async def test_only_the_word_healthy_means_healthy(kubelet: Side, ours: Side) -> None:
    """Alike: the health strings of section 1.1."""
    words = ("Healthy", "healthy", "HEALTHY", "", "Unhealthy", "Unknown")
    listed = [api_pb2.Device(ID=f"d{index}", health=word) for index, word in enumerate(words)]
    for side in (kubelet, ours):
        side.plugins[GPU].knobs.raw_list = listed
        await side.update(GPU, _devices(1))
        assert await side.maker.numbers() == {GPU: (6, 1)}


@pytest.mark.kubelet("behaviour 39", "scenario 32")
@_on_both_sides(_devices(0))
async def test_a_limit_of_zero_asks_for_nothing(kubelet: Side, ours: Side) -> None:
    """A limit of 0 asks for nothing: row 39."""
    assert (await kubelet.admit("p", _pod(0))).why is Why.LACKING
    assert (await ours.admit("p", _pod(0))).is_admitted


@pytest.mark.kubelet("behaviour 36", "behaviour 37")
@_on_both_sides(_devices(4))
async def test_a_changed_request_is_refused(kubelet: Side, ours: Side) -> None:
    """Alike: row 37; what the container has, it keeps."""
    for side in (kubelet, ours):
        assert (await side.admit("p", _pod(1))).is_admitted
        assert (await side.admit("p", _pod(1))).is_admitted
        assert (await side.admit("p", _pod(2))).why is Why.CHANGED
        assert len(side.plugins[GPU].calls_of("Allocate")) == 1


@pytest.mark.kubelet("behaviour 12", "weak spot 8")
@_on_both_sides(_devices(2))
async def test_a_plugin_may_register_twice(kubelet: Side, ours: Side) -> None:
    """A plugin may register again while it is connected: row 12, weak spot 8."""
    plugin = kubelet.plugins[GPU]
    with pytest.raises(grpc.aio.AioRpcError, match="already connected"):
        await plugin.register()
    # and from then on it neither notices that the plugin ends, nor lets it register again
    await plugin.stop()
    await plugin.start(kubelet.maker.plugin_dir)
    with pytest.raises(grpc.aio.AioRpcError, match="already connected"):
        await plugin.register()
    assert await kubelet.maker.numbers() == {GPU: (2, 2)}
    await ours.plugins[GPU].register()
    await ours.maker.listed(GPU, 2)
    assert (await ours.admit("p", _pod(2))).is_admitted


@pytest.mark.kubelet("weak spot 29")
@_on_both_sides(_devices(1))
async def test_a_refused_endpoint_is_never_dialled(kubelet: Side, ours: Side) -> None:
    """A socket lies in the plugin directory itself: weak spot 29."""
    for side in (kubelet, ours):
        plugin = side.plugins[GPU]
        (side.maker.plugin_dir / "sub").mkdir(exist_ok=True)
        plugin.calls.clear()
        path = f"sub/../{plugin.socket_name}"
        if side is ours:
            with pytest.raises(grpc.aio.AioRpcError, match="must be the file name of a socket"):
                await plugin.register(endpoint=path, resource_name="example.com/other")
            assert not plugin.calls
        else:
            await plugin.register(endpoint=path, resource_name="example.com/other")
            assert plugin.calls_of("GetDevicePluginOptions")


@pytest.mark.kubelet("weak spot 10")
@_on_both_sides(_devices(1))
async def test_a_list_of_five_mebibytes(kubelet: Side, ours: Side) -> None:
    """Device lists up to 131,072 devices: weak spot 10. The kubelet's stream ends at 4 MiB, and with it the resource."""
    many = [api_pb2.Device(ID=f"{index:060d}", health="Healthy") for index in range(72_000)]
    for side in (kubelet, ours):
        side.plugins[GPU].knobs.raw_list = many
    await kubelet.plugins[GPU].resend()
    await kubelet.maker.ended(GPU, 1)
    assert await kubelet.maker.numbers() == {GPU: (1, 0)}
    await ours.update(GPU, _devices(1))
    assert await ours.maker.numbers() == {GPU: (72_000, 72_000)}


@pytest.mark.kubelet("behaviour 30", "weak spot 17")
@_on_both_sides(_devices(1))
async def test_a_pods_end_is_on_disk(kubelet: Side, ours: Side) -> None:
    """Devices are free as soon as the pod has ended: row 66, weak spot 17."""
    for side in (kubelet, ours):
        assert (await side.admit("p", _pod(1))).is_admitted
        await side.end("p")
        await side.maker.stop()
        await side.maker.start(_NONE)
    assert [a.pod_uid for a in decode(kubelet.maker.checkpoint.read_text()).allocations] == ["p"]
    assert decode(ours.maker.checkpoint.read_text()).allocations == ()


@pytest.mark.kubelet("behaviour 26", "scenario 14")
@_on_both_sides((Dev("a", numa=(0, 1)), Dev("b"), Dev("c", numa=(1,))))
async def test_each_goes_on_with_the_others_checkpoint(kubelet: Side, ours: Side) -> None:
    """Alike: row 26 and section 3, both ways: an agent takes over from a kubelet, and gives back."""
    held = []
    pod = Admit((Ctr("init", {GPU: 1}), Ctr("app", {GPU: 3})))
    for side in (kubelet, ours):
        await side.admit("p", pod)
        held.append(await side.maker.held())
        await side.maker.stop()
    assert held[0] == held[1]
    one, other = kubelet.maker.checkpoint, ours.maker.checkpoint
    kept = one.read_bytes()
    shutil.copy(other, one)
    other.write_bytes(kept)
    for side in (kubelet, ours):
        await side.maker.start(_NONE, running=[("p", "c0"), ("p", "c1")])
        assert (await side.maker.admit("p", pod.containers)).is_admitted
        await side.maker.all_pods_known()
        assert await side.maker.held() == held[0]
        assert await side.maker.numbers() == {GPU: (0, 0)}


@pytest.mark.kubelet("scenario 62", "scenario 63")
@pytest.mark.parametrize(
    ("name", "by_kubelet", "by_us"),
    [
        ("v2-two-gpus-numa1.json", True, True),
        ("v2-one-pod-no-numa.json", True, True),
        ("v2-no-pods.json", True, True),
        ("v1-two-pods.json", False, True),
        ("corrupt-checksum.json", False, False),
    ],
)
def test_checkpoints_of_all_ages(both: Both, tmp_path: Path, name: str, by_kubelet: bool, by_us: bool) -> None:
    """Checkpoints of version 1 are read: section 3, rows 17, 62 and 63 of the conformance list."""
    kubelet = both.comparison.kubelet
    path = tmp_path / name
    shutil.copy(_CHECKPOINTS / name, path)
    assert both.runner.run(_is_read_by(kubelet, path)) is by_kubelet
    try:
        decode(path.read_text())
        is_read = True
    except CheckpointCorrupt:
        is_read = False
    assert is_read is by_us


async def _is_read_by(kubelet: Kubelet, path: Path) -> bool:
    try:
        await kubelet.verify(path)
    except OracleError:
        return False
    return True


@pytest.mark.kubelet("behaviour 65", "weak spot 12")
@_on_both_sides(_devices(2))
async def test_a_held_device_that_is_no_longer_listed_still_shows(kubelet: Side, ours: Side) -> None:
    """A device that vanishes while in use does no harm: row 65. It counts in total, and in allocated."""
    for side in (kubelet, ours):
        assert (await side.admit("p", _pod(1))).is_admitted
        await side.update(GPU, _devices(1))
    assert await kubelet.maker.numbers() == {GPU: (1, 1)}
    # and this is what the pod's status says of the device that is no longer there
    assert isinstance(kubelet.maker, Kubelet)
    assert await kubelet.maker.ask("health", uid="p") == {f"c0 {GPU} d1": "Healthy"}
    assert isinstance(ours.maker, Ours)
    now = ours.maker.snapshot(GPU)
    assert (now.total, now.healthy, now.allocated, now.available) == (2, 1, 1, 1)
