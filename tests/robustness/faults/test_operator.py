"""The operator, while its system calls fail; variables as in test_agent.py."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hack.cluster.control_plane.control_plane import ControlPlane
from tests.fakes.fault_proxy import FaultProxy
from tests.integration.deadlines import environment
from tests.robustness.faults.operator_scene import OperatorScene, operator_scene
from tests.robustness.faults.strace import Strace
from tests.robustness.faults.trial import CONSTANTS, survives


async def test_the_operator_survives_what_the_system_refuses(
    installed: ControlPlane,
    proxy: FaultProxy,
    namespace: str,
    strace: Strace,
    tmp_path_factory: pytest.TempPathFactory,
    subtests: pytest.Subtests,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable, value in environment(CONSTANTS).items():
        monkeypatch.setenv(variable, value)

    @asynccontextmanager
    async def opened() -> AsyncIterator[OperatorScene]:
        with operator_scene(installed, proxy, namespace, tmp_path_factory.mktemp("f")) as scene:
            yield scene

    await survives(opened, strace, subtests)
