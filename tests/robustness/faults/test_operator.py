"""The operator, while its system calls fail; variables as in test_agent.py."""

import pytest

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.fakes.fault_proxy import FaultProxy
from tests.robustness.faults.operator_scene import operator_scene
from tests.robustness.faults.strace import Strace
from tests.robustness.faults.trial import entered, survives


@pytest.mark.usefixtures("constants")
async def test_the_operator_survives_what_the_system_refuses(
    installed: ControlPlane,
    proxy: FaultProxy,
    namespace: str,
    strace: Strace,
    tmp_path_factory: pytest.TempPathFactory,
    subtests: pytest.Subtests,
) -> None:
    await survives(
        lambda: entered(operator_scene(installed, proxy, namespace, tmp_path_factory.mktemp("f"))), strace, subtests
    )
