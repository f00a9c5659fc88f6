"""What is stored of agents, as it is used before their Leases are polled."""

from nodedevice_api.names import Condition as Kind
from nodedevice_api.names import Reason
from nodedevice_operator.agents.liveness import AgentState, StoredAgent, stored_agents, stored_state
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, StoredCondition

from tests.fakes.operator.operator_model import GPU, NIC, node_device

ALIVE = ("True", Reason.LEASE_RENEWED)
EXPIRED = ("Unknown", Reason.LEASE_EXPIRED)
TOGETHER = ("Unknown", Reason.LEASES_EXPIRED_TOGETHER)
MISSING = ("Unknown", Reason.LEASE_MISSING)


def reports(
    agent: tuple[str, str] | None, resource: str = GPU, node: str = "node-a", *, withdrawn: bool = False
) -> NodeDeviceRecord:
    """A NodeDevice on which that is stored of its agent."""
    conditions = {}
    if agent is not None:
        conditions[Kind.AGENT_READY] = StoredCondition(*agent, "words", "then", 1)
    if withdrawn:
        conditions[Kind.ADVERTISED] = StoredCondition("True", Reason.FREE_WITHDRAWN, "", "then", 1)
    return node_device(resource, node=node, conditions=conditions)


def test_of_an_agent_nothing_may_be_stored() -> None:
    assert stored_state([reports(None), reports(None, NIC)]) is None
    assert stored_agents([reports(None)]) == {}


def test_a_state_is_reported_in_its_own_words() -> None:
    assert stored_state([reports(MISSING)]) == AgentState(*MISSING, "words")
    assert stored_state([reports(None, NIC), reports(ALIVE)]) == AgentState(*ALIVE, "words")


def test_silence_comes_before_life() -> None:
    both = [reports(ALIVE), reports(EXPIRED, NIC)]
    assert stored_state(both) == stored_state(both[::-1]) == AgentState(*EXPIRED, "words")
    assert stored_agents(both) == stored_agents(both[::-1]) == {"node-a": StoredAgent(is_alive=False)}


def test_of_each_node_whether_it_lived_and_whether_it_was_withdrawn() -> None:
    records = [
        reports(ALIVE, node="node-a"),
        reports(TOGETHER, node="node-b"),
        reports(EXPIRED, node="node-c", withdrawn=True),
        reports(EXPIRED, NIC, node="node-c"),
        reports(None, node="node-d"),
    ]
    assert stored_agents(records) == {
        "node-a": StoredAgent(is_alive=True),
        "node-b": StoredAgent(is_alive=False),
        "node-c": StoredAgent(is_alive=False, is_withdrawn=True),
    }


def test_one_that_has_no_lease_never_had_one() -> None:
    assert stored_agents([reports(MISSING)]) == {}
