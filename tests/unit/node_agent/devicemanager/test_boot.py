"""What a boot of the node ends of a checkpoint."""

from msgspec import structs
from nodedevice_agent.devicemanager.allocation.responses_after_boot import after_boot
from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.records.cordons import Cordon, Cordons
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN
from nodedevice_agent.identity import Identity

OWN, FOREIGN, OLD = NAMES = ("example.com/own", "org.test/foreign", "example.com/old")
FILES = (("/dev/a", "c1:3"),)
BEFORE = Checkpoint(
    tuple(Allocation("p", "main", name, {-1: ("d",)}, b"x", ContainerEdits(), 7, FILES) for name in NAMES),
    {OWN: ("d",)},
    boot_id="before",
    cordons={OWN: Cordons("uid", {"d": Cordon()}, {})},
    identities={OWN: {"d": Identity(("c1:3", "/port/1-1"), True), "e": Identity(("GPU-1",))}},
    scopes={OWN: f"{BUILT_IN}x", FOREIGN: "domain org.test"},
)


def allocations(after: Checkpoint) -> dict[str, Allocation]:
    return {a.resource_name: a for a in after.allocations}


def test_answers_of_built_in_plugins_and_nothing_else_of_allocations() -> None:
    # of the others it is known
    after = allocations(after_boot(BEFORE, {OLD: True}.__getitem__))
    for name in (OWN, OLD):
        assert (after[name].response, after[name].edits, after[name].files) == (None, None, ())
        assert (after[name].ids_by_numa, after[name].since, after[name].pod_uid) == ({-1: ("d",)}, 7, "p")
    assert after[FOREIGN] == allocations(BEFORE)[FOREIGN]
    assert after[FOREIGN].edits is not None


def test_numbers_of_what_is_held() -> None:
    after = after_boot(BEFORE, lambda _: False)
    assert after.identities == {OWN: {"d": Identity(("/port/1-1",), True), "e": Identity(("GPU-1",))}}
    # and the rest stays
    assert structs.replace(after, allocations=BEFORE.allocations, identities=BEFORE.identities) == BEFORE
