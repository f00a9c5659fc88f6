"""What `--runtime auto` comes to."""

import pytest
from nodedevice_agent.runtime.selection import Evidence, choose

GPU = "example.com/gpu"


@pytest.mark.parametrize(
    ("evidence", "runtime"),
    [
        pytest.param(Evidence("", True, (), ()), "nri", id="the socket is there"),
        pytest.param(Evidence("", False, (), ()), "kubelet", id="it is not"),
        pytest.param(Evidence("nri", False, (GPU,), (GPU,)), "nri", id="kept, whatever is there now"),
        pytest.param(Evidence("kubelet", True, (), ()), "kubelet", id="kept, although the socket is there now"),
        pytest.param(
            Evidence("", True, (GPU,), (GPU, "x.com/y")), "kubelet", id="a name of ours that the kubelet knows"
        ),
        pytest.param(Evidence("", True, (GPU,), ("x.com/y",)), "nri", id="names of others are the others'"),
    ],
)
def test_choice(evidence: Evidence, runtime: str) -> None:
    assert choose(evidence).runtime == runtime


def test_the_reason_names_what_it_rests_on_in_bounds() -> None:
    many = [f"example.com/r{index}" for index in range(9)]
    assert choose(Evidence("", True, many, many)).why == (
        "the kubelet knows example.com/r0, example.com/r1, example.com/r2, … from before"
    )
