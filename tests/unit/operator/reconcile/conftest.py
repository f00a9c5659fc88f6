"""A NodeReconciler with its collaborators, around a model of the cluster."""

import pytest

from tests.unit.operator.reconcile.bench import Bench, new_bench


@pytest.fixture
async def bench() -> Bench:
    return await new_bench()
