"""The delivery that `--delivery auto` stands for."""

import pytest
from nodedevice_agent.delivery.selection import Evidence, choose

GPU = "example.com/gpu"


@pytest.mark.parametrize(
    ("evidence", "delivery"),
    [
        pytest.param(Evidence("", True), "nri", id="a socket"),
        pytest.param(Evidence("", False), "kubelet", id="no socket"),
        pytest.param(Evidence("nri", False, (GPU,)), "nri", id="stored, without a socket now"),
        pytest.param(Evidence("kubelet", True), "kubelet", id="stored, with a socket now"),
        pytest.param(Evidence("", True, (GPU,)), "kubelet", id="a shared name"),
    ],
)
def test_choice(evidence: Evidence, delivery: str) -> None:
    assert choose(evidence)[0] == delivery


def test_the_reason_names_a_bounded_number_of_resources() -> None:
    reason = choose(Evidence("", True, [f"example.com/r{index}" for index in range(9)]))[1]
    assert reason == "the kubelet's checkpoint has example.com/r0, example.com/r1, example.com/r2, …"
