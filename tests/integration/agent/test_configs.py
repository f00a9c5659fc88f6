"""NodeDeviceConfigs on a real API server, and an agent that applies them while it runs."""

from collections import Counter
from datetime import UTC, datetime

from tests.integration.agent_process import AGENT_USER, until
from tests.integration.configured_node import SERIAL, SIMULATED, ConfiguredNode, simulated


async def test_configurations_cost_two_watches(configured: ConfiguredNode) -> None:
    """Of all configurations, and of the own Node by its name; besides those of pods, of each NodeDevice, and of DRA's slices.

    After a change of a label that a selector names, the configurations are listed and watched again: others may select the node.
    """
    node, began = configured.node, datetime.now(UTC).isoformat()
    configured.start_agent()
    await configured.configure("a", simulated(2))
    await configured.until_total(SIMULATED, 2)
    await configured.configure("a", simulated(3))
    await configured.label("elsewhere")
    await configured.until_reported({})
    node.agent.kill()

    def watched() -> Counter[str]:
        mine = (
            event
            for event in node.control_plane.audit_events()
            if event["verb"] == "watch"
            and event["user"]["username"] == AGENT_USER
            and event["requestReceivedTimestamp"] > began
        )
        return Counter(event["objectRef"]["resource"] for event in mine)

    wanted = {"nodedeviceconfigs": 2, "nodes": 1, "pods": 1, "nodedevices": 1, "resourceslices": 1}
    await until(lambda: watched() == wanted, lambda: f"{watched()} becomes {wanted}")


async def test_a_path_that_is_not_allowed_is_refused_and_the_rest_runs_on(configured: ConfiguredNode) -> None:
    configured.start_agent()
    await configured.configure("good", simulated(2))
    groups = [{"paths": [{"path": "/etc/shadow"}]}]
    await configured.configure("bad", {"generic": [{"resourceName": SERIAL, "groups": groups}]}, 9)
    await until(
        lambda: "allowedHostPaths" in configured.reported().get("bad", {}).get("refusal", ""),
        lambda: str(configured.reported()),
    )
    await configured.until_total(SIMULATED, 2)
    assert (await configured.node.agent.until_logged("configuration refused"))["generation"] == 1
