"""The earlier name of `tests.cluster`, for tests outside this repository that import it."""

from tests import cluster

__path__ = list(cluster.__path__)
