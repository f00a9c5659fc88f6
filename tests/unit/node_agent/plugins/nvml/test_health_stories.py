"""What takes a GPU out of service, and what brings it back: event by event, with the reason that is shown after each."""

from typing import Any

import pytest
from nodedevice_agent.plugins.nvml.driver_troubles import Fabric, Reading
from nodedevice_agent.plugins.nvml.health import GpuHealth, HealthRules
from nodedevice_agent.plugins.nvml.settings import GpuHealthSettings, NvmlSettings

from tests.unit.node_agent.plugins.nvml.health_events import MUTE, WELL, Xid, after, read

Event = Xid | Reading | str


def story(its_id: str, *steps: Event | tuple[Event, str], **settings: Any) -> Any:
    """Events, each with the reason that is shown after it; no reason is shown after an event alone."""
    made = [step if isinstance(step, tuple) else (step, "") for step in steps]
    return pytest.param(made, NvmlSettings(**settings).health_rules(), id=its_id)


def counted(ecc_errors: int, action: int | None = None) -> Reading:
    return Reading(ecc_uncorrected=ecc_errors, recovery_action=action)


RESET, ECC, BEFORE = "ResetRequired", "EccUncorrectable", "EccBeforeStart"
MARKED = (Xid(79), "Xid79")

OF_OUR_LIST = [
    story("a critical Xid stays", MARKED, (MUTE, "Xid79")),
    story("an application Xid is nothing", Xid(31), Xid(43), MUTE),
    story("an unknown Xid is critical", (Xid(9999), "Xid9999"), (MUTE, "Xid9999")),
    story("the first critical Xid is the cause", (Xid(48), "Xid48"), (Xid(79), "Xid48"), (MUTE, "Xid48")),
    story("the energy counter starts again", MUTE, MARKED, Reading(energy_mj=10)),
    story("it goes on", MUTE, MARKED, (Reading(energy_mj=1000), "Xid79"), (Reading(energy_mj=1001), "Xid79")),
    story("a counter that is missing once shows nothing", MUTE, MARKED, (Reading(), "Xid79")),
    story("and is not forgotten", MUTE, MARKED, (Reading(), "Xid79"), Reading(energy_mj=1)),
    story(
        "an energy counter that is read only once the GPU is marked",
        *(MARKED, (Reading(), "Xid79"), (Reading(energy_mj=5), "Xid79"), Reading(energy_mj=4)),
    ),
    story("its Xid explains more than that it is lost", MARKED, (Reading(is_lost=True), "Xid79"), MUTE),
    story("silent is not gone: no reset", MARKED, ("silent", "Xid79"), (MUTE, "Xid79")),
    story("a call that hangs is no reset", MARKED, (Reading(hung_call="x"), "Xid79"), (MUTE, "Xid79")),
    story(
        "an answer that is missing once is no word of the driver",
        *(WELL, MARKED, (MUTE, "Xid79"), (read(1), "Xid79"), (read(3), "Xid79"), (WELL, "Xid79")),
    ),
    story("an administrator's word", MARKED, (MUTE, "Xid79"), "cleared", MUTE),
    story("by settings", *(Xid(79), (Xid(31), "Xid31"), (MUTE, "Xid31")), critical_xids=[31], harmless_xids=[79]),
]
OF_THE_DRIVER = [
    story("it needs nothing", WELL, MARKED, WELL),
    story("the first answer may come too early", MARKED, (read(0, 79), "Xid79"), WELL),
    story("the second answer counts", MARKED, (read(0, 79), "Xid79"), (read(1), RESET), WELL),
    story("an early one that asks for something waits", Xid(94), read(1, 94), (read(1), RESET)),
    story("what it asked for before the Xid does not", (read(1), RESET), (Xid(94), RESET), (read(1, 94), RESET)),
    story("one second answer is enough", Xid(94), Xid(31), (read(1, 31), RESET), read(0, 31), (read(1), RESET)),
    story("a harmless Xid after which it asks for a reset", Xid(31), WELL, (read(4), RESET)),
    story("each Xid has its own second", (Xid(48), "Xid48"), (Xid(79), "Xid48"), (read(0, 79), "Xid79"), WELL),
    story("peer-to-peer traffic has to end", MARKED, read(3), WELL),
    story("an administrator does not wait for it", MARKED, "cleared", read(0, 79)),
    story("nor a setting", (Xid(31), "Xid31"), (WELL, "Xid31"), (WELL, "Xid31"), "cleared", critical_xids=[31]),
    story("nor one that it is harmless", WELL, Xid(79), read(1, 79), read(1), read(1), WELL, harmless_xids=[79]),
    story("another action is not excused", Xid(79), read(1), (read(2), RESET), (read(1), RESET), harmless_xids=[79]),
    story("nor it after another Xid", *(Xid(79), read(1), (Xid(48), "Xid48"), (read(1), RESET)), harmless_xids=[79]),
    story("nor one that two Xids may have caused", Xid(79), (Xid(48), "Xid48"), (read(1), RESET), harmless_xids=[79]),
    story("nor one from before the Xid", (read(1), RESET), (Xid(79), RESET), (read(1), RESET), harmless_xids=[79]),
    story("what the driver asks for", (read(1), RESET), WELL),
    story("a reset that it no longer asks for ends a mark", ("ecc", ECC), (read(4), ECC), WELL),
    story("the end of what is no reset does not", ("ecc", ECC), (read(3), ECC), (WELL, ECC)),
    story(
        "what it asks for is no matter by a setting",
        *(read(1), (read(3), "PeerToPeerDrain")),
        health=GpuHealthSettings(reset_required="ignore", peer_to_peer_drain="unhealthy"),
    ),
]
CONTAINED = (counted(1, 0), "ecc", counted(2, 0), counted(2, 0), WELL)
LATER = (counted(2), ECC)
OF_MEMORY = [
    story("ECC errors stay until the counter is zero again", WELL, (counted(1), ECC), (counted(1), ECC), counted(0)),
    story(
        "ECC errors from before the start",
        *((counted(1), BEFORE), (counted(1), BEFORE), "cleared", counted(1), (counted(2), ECC), counted(0)),
    ),
    story("ECC errors ignored", counted(3), "ecc", counted(4), ecc_errors="ignore"),
    story("contained ones, after which the driver requests nothing", WELL, Xid(94), *CONTAINED),
    story("while no agent ran, too", (counted(2, 0), BEFORE), "cleared", counted(3, 0)),
    story("not contained ones: it requests a reset", WELL, "ecc", counted(1, 0), (counted(1, 1), RESET), WELL),
    story("an end of peer-to-peer traffic is its word as well", WELL, "ecc", counted(1, 3)),
    story("a driver that does not answer has no word", WELL, (counted(1), ECC), (counted(1, 0), ECC), WELL),
    story("contained by its Xid, with no word of the driver", *(MUTE, Xid(94), "ecc", counted(1), counted(1), LATER)),
    story("the Xid that reported it", *(MUTE, (Xid(48), "Xid48"), (counted(1), "Xid48"), (counted(1), "Xid48"))),
    story("and is harmless by a setting", *(MUTE, Xid(48), counted(1), counted(1), LATER), harmless_xids=[48]),
    story("an Xid of something else explains none", MUTE, Xid(31), (counted(1), ECC)),
    story("ECC counts by a setting", WELL, (counted(1, 0), ECC), (counted(1, 0), ECC), WELL, ecc_errors="unhealthy"),
    story("a call that hangs", (Reading(hung_call="nvmlX"), "DriverHangs"), WELL),
    story("one that reports nothing, not even its UUID", WELL, (Reading(failure="no"), "GpuUnreadable"), WELL),
    story("an administrator's word is not the driver's", (Reading(is_lost=True), "GpuLost"), ("cleared", "GpuLost")),
    story("a fabric that comes late", (Reading(fabric=Fabric(2)), "FabricNotReady"), Reading(fabric=Fabric(3))),
]


@pytest.mark.parametrize(("steps", "rules"), [*OF_OUR_LIST, *OF_THE_DRIVER, *OF_MEMORY])
def test_story(steps: list[tuple[Event, str]], rules: HealthRules) -> None:
    health = GpuHealth()
    for number, (event, reason) in enumerate(steps):
        health = after(health, event, rules)
        assert (health.trouble.reason if health.trouble else "") == reason, f"after step {number}: {event}"
