"""docs/watch-only.md has what each source of devices can tell, and which pairs cannot be compared, as in the agent's table."""

from itertools import product

import pytest
from nodedevice_agent.identity import Kind
from nodedevice_agent.offered_twice.sources import TABLE, Source

from docs.generate_offered_twice import BEGIN, END, PAGE, PageError, page_with


def test_the_page_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with(page), "run `make generate`"


def test_each_row_and_each_pair_is_there() -> None:
    rows, pairs = (
        [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
        for table in page_with(f"{BEGIN}\n{END}").split("\n\n")[1:3]
    )
    assert [row[3] for row in rows] == [row.where for row in TABLE]
    # of four sources, and of two of one kind but the built-in plugins'
    assert len({(one, other) for one, other, _, _ in pairs}) == len(Source) * (len(Source) + 1) // 2 - 1
    knowable = {(row.source, row.kind) for row in TABLE}
    assert {*product(Source, {kind for _, kind in knowable})} - knowable == {
        (Source.KUBELET, Kind.SERIAL),
        (Source.PLUGIN, Kind.SERIAL),
    }
    for one, other, common, missing in pairs:
        says_no_serial = any("plugin of the kubelet" in each or "with the agent" in each for each in (one, other))
        assert ("serial number" in missing, "serial number" in common) == (says_no_serial, not says_no_serial)


def test_a_page_without_a_place_is_refused() -> None:
    with pytest.raises(PageError, match="needs the lines"):
        page_with("# Watch only\n")
