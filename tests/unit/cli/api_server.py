"""The played API server by the names that tests of the command use, with the objects that they set."""

from tests.fakes.played_api.kinds import CRDS, DAEMON_SETS, DEPLOYMENTS, EVENTS, LEASES, NODES, OURS, PODS
from tests.fakes.played_api.messages import Answer, Object, Request, status
from tests.fakes.played_api.server import Fault, PlayedApi
from tests.fakes.played_api.serving import kubeconfig, serving

__all__ = [
    "CRDS",
    "DAEMON_SETS",
    "DEPLOYMENTS",
    "EVENTS",
    "LEASES",
    "NODES",
    "OURS",
    "PODS",
    "Answer",
    "FakeApiServer",
    "Fault",
    "Object",
    "Request",
    "kubeconfig",
    "serving",
    "status",
]

FakeApiServer = PlayedApi
