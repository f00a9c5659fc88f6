"""An AgentMonitor around a model of the cluster, for the tests beside this; its fixtures are in conftest.py."""

from dataclasses import dataclass

from nodedevice_operator.informers.store import Cache
from nodedevice_operator.leases.agent_monitor import AgentMonitor
from nodedevice_operator.observability.events import Event
from nodedevice_operator.observability.metrics import Metrics

from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.collaborators import RecordingQueue


@dataclass
class Watched:
    """The cache is whole, with a NodeDevice on each node."""

    cluster: ClusterModel
    cache: Cache
    queue: RecordingQueue
    metrics: Metrics
    posted: list[Event]
    monitor: AgentMonitor

    def agents(self, state: str) -> float:
        value = self.metrics.registry.get_sample_value("nodedevice_operator_agents", {"state": state})
        assert value is not None
        return value
