"""Where no policy marks pods: the runtime requires the agent for every container of the node, but for those that are excepted."""

from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod

_TABLE = "[plugins.'io.containerd.nri.v1.nri'.default_validator]\n"
_EXCEPTED = "tolerate-missing-plugins.noderesource.dev"
_OF_ALL = f"""\
required_plugins = [ "nodedevice" ]
tolerate_missing_plugins_annotation = "{_EXCEPTED}"
"""


def test_nothing_but_what_is_excepted_starts_while_the_agent_is_away(nri_node: NodeUnderTest) -> None:
    rw = nri_node.kinds["rw"]
    excepted = pod("excepted", [container("main")])
    excepted["metadata"]["annotations"] = {_EXCEPTED: "true"}
    with nri_node.containerd_with(_TABLE, _TABLE + _OF_ALL):
        nri_node.agent.kill()
        nri_node.run(excepted)
        nri_node.create(pod("plain", [container("main")]))
        # no policy has marked it
        with nri_node.static(pod("asks", [container("main", {rw.resource: 1})])) as asking:
            for name in ("plain", asking):
                nri_node.wait_refused(name)
                assert not nri_node.starts(name)
        nri_node.start_agent()
        nri_node.wait_running_nudged("plain")
        nri_node.delete("excepted", "plain")
