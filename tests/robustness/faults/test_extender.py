"""The extender, while its system calls fail; variables as in test_agent.py."""

import pytest

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.fakes.fault_proxy import FaultProxy
from tests.robustness.faults.extender_scene import extender_scene
from tests.robustness.faults.strace import Strace
from tests.robustness.faults.trial import entered, survives


@pytest.mark.usefixtures("constants")
async def test_the_extender_survives_what_the_system_refuses(
    installed: ControlPlane,
    proxy: FaultProxy,
    namespace: str,
    strace: Strace,
    tmp_path_factory: pytest.TempPathFactory,
    subtests: pytest.Subtests,
) -> None:
    await survives(
        lambda: entered(extender_scene(installed, proxy, namespace, tmp_path_factory.mktemp("f"))), strace, subtests
    )
