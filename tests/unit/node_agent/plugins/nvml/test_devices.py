"""The best set of GPUs, compared with a brute-force search."""

from collections.abc import Collection, Mapping
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nodedevice_agent.plugins.nvml import devices
from nodedevice_agent.plugins.nvml.devices import CONTROL_NODES, HandOver, Refused, allocation, preferred
from nodedevice_agent.plugins.nvml.gpu import Gpu, GpuDevice, Pair, pair
from nodedevice_agent.plugins.nvml.mig import MigInstance, capability_minors

from hack.fake_nvml.machines import MACHINES, described
from tests.examples import examples

IDS = [f"g-{index}" for index in range(16)]


def set_score(scores: Mapping[Pair, int], device_ids: Collection[str]) -> int:
    return sum(scores.get(pair(one, other), 0) for one, other in combinations(device_ids, 2))


def best_by_trying(scores: Mapping[Pair, int], free: list[str], must: list[str], size: int) -> int:
    rest = [device for device in free if device not in must]
    return max(set_score(scores, (*must, *others)) for others in combinations(rest, size - len(must)))


@pytest.mark.parametrize(
    ("machine", "size"), [(machine, size) for machine, gpus in MACHINES.items() for size in range(1, min(gpus, 8) + 1)]
)
def test_no_set_is_better_on_a_whole_machine(machine: str, size: int) -> None:
    scores, nodes = described(machine)
    ids = sorted(nodes)
    chosen = preferred(scores, nodes, ids, (), size)
    assert len(set(chosen)) == size
    assert set_score(scores, chosen) == best_by_trying(scores, ids, [], size)


@st.composite
def questions(draw: st.DrawFn) -> tuple[dict[Pair, int], list[str], list[str], int]:
    ids = draw(st.permutations(IDS))[: draw(st.integers(1, 10))]
    scores = {pair(a, b): draw(st.integers(0, 4)) * 100 + draw(st.integers(1, 6)) * 10 for a, b in combinations(ids, 2)}
    must = ids[: draw(st.integers(0, min(3, len(ids))))]
    return scores, ids, must, draw(st.integers(max(1, len(must)), len(ids)))


@given(questions())
@settings(max_examples=examples(150), deadline=None)
def test_no_set_is_better(question: tuple[dict[Pair, int], list[str], list[str], int]) -> None:
    scores, ids, must, size = question
    free = ids[len(must) :]
    chosen = preferred(scores, {}, free, must, size)
    assert set(must) <= set(chosen) <= set(ids)
    assert len(set(chosen)) == size
    assert set_score(scores, chosen) == best_by_trying(scores, ids, must, size)
    # equal inputs, equal answer, in whatever order they come
    assert chosen == preferred(dict(reversed(scores.items())), {}, reversed(free), reversed(must), size)


def test_the_remaining_gpus_break_a_tie() -> None:
    # a pair and a trio, all joined equally: one GPU is taken from the pair, so that three stay together
    joined = [("a", "b"), ("c", "d"), ("c", "e"), ("d", "e")]
    scores = {pair(x, y): 100 if (x, y) in joined else 10 for x, y in combinations("abcde", 2)}
    assert preferred(scores, {}, "abcde", (), 1) == ("a",)
    assert preferred(scores, {}, "bcde", (), 1) == ("b",)
    assert preferred(scores, {}, "abcde", (), 2) == ("a", "b")


def test_then_fewer_numa_nodes_then_the_lowest_ids() -> None:
    scores = {pair(x, y): 10 for x, y in combinations(IDS[:4], 2)}
    assert preferred(scores, {"g-0": (0,), "g-1": (1,), "g-2": (1,), "g-3": (0,)}, IDS[:4], (), 2) == ("g-0", "g-3")
    assert preferred({}, {}, ["g-10", "g-2"], (), 1) == ("g-2",)


def test_too_many_sets_still_get_a_good_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, nodes = described("dgx1-v100")
    ids = sorted(nodes)
    monkeypatch.setattr(devices, "MOST_SETS", 1)
    for size in range(1, 9):
        chosen = preferred(scores, nodes, ids[1:], ids[:1], size)
        best = best_by_trying(scores, ids, ids[:1], size)
        assert ids[0] in chosen
        assert set_score(scores, chosen) >= best * 0.9


def test_what_a_container_gets_of_mig_instances() -> None:
    gpu = Gpu("GPU-a", minor=3)
    held = [GpuDevice(gpu, MigInstance(f"MIG-{ci}", "1c.2g.20gb", 1, ci, 20000)) for ci in (1, 0)]
    minors = capability_minors("config 1\ngpu3/gi1/access 120\ngpu3/gi1/ci0/access 121\ngpu3/gi1/ci1/access 122\n")
    everything = HandOver(["env", "deviceNodes", "cdi"], "nvidia.com/gpu", CONTROL_NODES[:1], minors)
    made = allocation(held, everything)
    assert made.env == {"NVIDIA_VISIBLE_DEVICES": "MIG-0,MIG-1"}
    assert made.cdi_devices == ("nvidia.com/gpu=MIG-0", "nvidia.com/gpu=MIG-1")
    caps = [f"/dev/nvidia-caps/nvidia-cap{number}" for number in (120, 121, 122)]
    assert [node.host_path for node in made.device_nodes] == ["/dev/nvidia3", *caps, "/dev/nvidiactl"]
    with pytest.raises(Refused, match="mig-minors has no device files for instance MIG-0"):
        allocation(held, HandOver(["deviceNodes"], "nvidia.com/gpu"))
