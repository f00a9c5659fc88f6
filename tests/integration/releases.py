"""What releases of Kubernetes lack that are supported: the tests of it are skipped there, by name."""

from typing import Final

import pytest

from tests.cluster.cluster import Cluster

# the minor version from which on an API server has it without a feature gate
MUTATING_POLICIES: Final = "MutatingAdmissionPolicy v1"
DECLARED_FEATURES: Final = "status.declaredFeatures of a Node"
_SINCE: Final = {MUTATING_POLICIES: 36, DECLARED_FEATURES: 35}


def needs(cluster: Cluster, what: str) -> None:
    """Skips the test on a release without it."""
    if int(cluster.version.split(".")[1]) < _SINCE[what]:
        pytest.skip(f"Kubernetes {cluster.version} has no {what}")
