"""What the condition says: the other resource, the devices, how many are held, and which side goes; the same on both sides."""

import re
from itertools import combinations

import pytest
from nodedevice_agent.kube.conditions import MAX_MESSAGE
from nodedevice_agent.offered_twice.compare import MOST_DEVICES, Offer
from nodedevice_agent.offered_twice.messages import message
from nodedevice_agent.offered_twice.sources import Raw, Source

from tests.unit.node_agent.offered_twice.offered import UUID, findings, offer, uuid

IDS = {
    Source.KUBELET: Raw(UUID),
    Source.DRA: Raw("gpu-0", {"uuid": UUID}),
    Source.PLUGIN: Raw(UUID),
    Source.BUILT_IN: Raw(UUID, tokens=(UUID,)),
}


def said(*offers: Offer) -> dict[str, str]:
    found = findings(*offers)
    return {each.resource_name: message(each, found[each.resource_name]) for each in offers}


_GOES = re.compile(r"(?:device plugin of|take|DRA driver \S+ on this node \()\s*(\S+?)\)?(?: on| out|$)")


def who_goes(text: str) -> str:
    found = _GOES.search(text.rpartition("; ")[2])
    assert found is not None, text
    return found[1]


# of two of which both or neither have pods the first goes
ORDER = (Source.KUBELET, Source.PLUGIN, Source.BUILT_IN, Source.DRA)


@pytest.mark.parametrize("held", [(), (0,), (1,), (0, 1)], ids=["none", "the first", "the second", "both"])
@pytest.mark.parametrize("sources", [*combinations(ORDER, 2)])
def test_the_unused_side_goes_else_the_plugin(sources: tuple[Source, Source], held: tuple[int, ...]) -> None:
    raws = [IDS[source] for source in sources]
    offers = [offer(sources[n], [raws[n]], held=[raws[n].id] if n in held else []) for n in (0, 1)]
    texts = said(*offers)
    name = offers[1 if held == (0,) else 0].resource_name
    assert {who_goes(text) for text in texts.values()} == {name}
    drain = f"drain the pods that use devices of {name}, then"
    assert all((drain in text) == (len(held) == 2) for text in texts.values())


def test_of_two_of_one_kind_the_first_by_name_goes_on_both_sides() -> None:
    texts = said(*(offer(Source.KUBELET, [Raw(UUID)], name=f"{vendor}.example.com/gpu") for vendor in "ba"))
    assert {who_goes(text) for text in texts.values()} == {"a.example.com/gpu"}


def test_few_devices_are_named_and_the_rest_counted() -> None:
    ids = [uuid(n) for n in range(1, 6)]
    offers = [offer(Source.KUBELET, [Raw(i) for i in ids]), offer(Source.PLUGIN, [Raw(i) for i in ids], held=ids[:2])]
    texts = said(*offers)
    here, there = (texts[each.resource_name] for each in offers)
    begin, end = "5 devices are also offered by", "and can be allocated"
    assert here.startswith(f"{begin} {offers[1].resource_name} (served by nodedevice) {end}")
    assert f"{ids[0]}, {ids[1]}, {ids[2]} and 2 more; 0 in use here and 2 there; stop" in here
    assert there.startswith(f"{begin} {offers[0].resource_name} (served by the kubelet) {end}")


def test_few_other_resources_are_named_and_the_message_is_bounded() -> None:
    longest = "x" * 60
    offers = [
        offer(Source.PLUGIN, [Raw(uuid(n)) for n in range(1, 9)], name=f"{longest}{number:02}.example.com/{longest}")
        for number in range(12)
    ]
    texts = said(*offers)
    assert all(text for text in texts.values())
    assert max(map(len, texts.values())) <= MAX_MESSAGE
    assert max(texts.values(), key=len).endswith("; and 8 more resources offer some of its devices")


def test_more_than_a_nodedevice_can_list_are_not_counted() -> None:
    ids = [Raw(uuid(n)) for n in range(1, MOST_DEVICES + 3)]
    texts = said(offer(Source.KUBELET, ids), offer(Source.PLUGIN, ids))
    assert all(text.startswith(f"{MOST_DEVICES} or more devices are") for text in texts.values())
