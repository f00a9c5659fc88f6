"""What operator and extender measure: names, kinds and labels are an interface, to dashboards and alerts."""

from nodedevice_operator.extender.metrics import ExtenderMetrics
from nodedevice_operator.extender.stores import KINDS as FLEET_KINDS
from nodedevice_operator.informers.store import Store, Stores

from tests.fakes.operator.operator_model import node_device


def test_what_the_extender_has_stored_and_promised_is_counted_at_each_scrape() -> None:
    metrics, stores = ExtenderMetrics(), Stores({kind.name: Store() for kind in FLEET_KINDS}, ("x",))
    promised: dict[str, int] = {}
    metrics.watch(stores, lambda: promised)
    value = metrics.registry.get_sample_value
    assert {kind.name: value("nodedevice_extender_objects", {"kind": kind.name}) for kind in FLEET_KINDS} == {
        kind.name: 0 for kind in FLEET_KINDS
    }
    stores.stores["nodedevices"].put(node_device())
    assert value("nodedevice_extender_objects", {"kind": "nodedevices"}) == 1
    promised |= {f"example.com/{number:03}": number for number in range(101)}
    assert value("nodedevice_extender_promised_parts", {"resource": "example.com/099"}) == 99
    # a bounded number of names
    assert value("nodedevice_extender_promised_parts", {"resource": "example.com/100"}) is None
