"""`make scheduling` in small: real schedulers and extenders, pods that come and go, and nothing is promised twice."""

from collections.abc import Iterator

import pytest

from hack.scheduling.cluster import gpu_cluster
from hack.scheduling.runs import Site, filled, with_extenders, with_rival

_NODES = 4
_PODS = 400
_CONTENDED = 100


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("scheduling")
    with gpu_cluster(folder, _NODES, print) as (control_plane, nodes):
        yield Site(control_plane, nodes, folder)


async def test_no_unit_twice_and_no_pod_waits_while_extenders_are_killed_and_paused(site: Site) -> None:
    found, disturbed = await with_extenders(site, _PODS, seed=1, times=2, every_seconds=0.5)
    assert disturbed == 2, "one was killed, and one paused"
    assert (found.pods, found.chosen) == (_PODS, _PODS)
    assert (found.waits, found.twice, found.refused) == (0, 0, 0)


async def test_no_unit_twice_while_another_scheduler_binds_to_the_same_nodes(site: Site) -> None:
    found = await with_rival(site, _CONTENDED, seed=3)
    print(f"beside a scheduler without extender: {found}")
    assert (found.pods, found.chosen) == (_CONTENDED, _CONTENDED // 2)
    assert found.twice == 0


async def test_pods_that_stay_fill_gpus_as_well_as_if_all_were_known(site: Site) -> None:
    found = await filled(site, seed=2)
    assert (found.outcome.waits, found.outcome.twice, found.outcome.refused) == (0, 0, 0)
    assert found.outcome.units >= 0.95 * found.first_fit
