"""Which release is older, and so must not take the place of another; and what `crds apply` writes and prints."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from nodedevice_api import names
from nodedevice_operator import __version__
from nodedevice_operator.__main__ import main
from nodedevice_operator.cli.crds import NAMES, is_older, release

from tests.unit.operator.cli.cluster import CRDS, named
from tests.unit.operator.kube.api_server import Server, kubeconfig

IN_ORDER = (
    *("0.1.0-alpha", "0.1.0-rc.2", "0.1.0-rc.10", "0.1.0-rc.x"),
    *("0.1.0", "0.1.1", "0.2.0", "0.10.0", "1.0.0", "10.0.0"),
)


def test_order() -> None:
    for index, older in enumerate(IN_ORDER):
        for newer in IN_ORDER[index + 1 :]:
            assert is_older(older, newer), (older, newer)
            assert not is_older(newer, older), (newer, older)


@pytest.mark.parametrize(("ours", "there"), [("0.1.0", "0.1.0"), ("v0.1.0", "0.1.0+build.7"), ("0.1.0", "")])
def test_equals_are_not_older(ours: str, there: str) -> None:
    assert not is_older(ours, there)
    assert not is_older(there, ours)


@pytest.mark.parametrize("text", ["", "1", "1.2", "1.2.x", "newest", "1.2.3-", "9999999999.0.0"])
def test_what_names_no_release_is_as_old_as_can_be(text: str) -> None:
    assert release(text) is None
    assert not is_older("0.0.1", text)


def crd(name: str, of: str = __version__, generation: int = 1, **conditions: str) -> tuple[int, Any]:
    """An answer: the definition as that release's, with these conditions."""
    found = named(
        name,
        spec={"group": "g", "names": {"plural": "p", "kind": "K"}, "scope": "Cluster", "versions": []},
        status={"conditions": [{"type": k, "status": v, "message": "m"} for k, v in conditions.items()]},
    )
    found["metadata"] |= {"generation": generation, "annotations": {names.RELEASE_ANNOTATION: of}}
    return 200, found


ABSENT: tuple[int, dict[str, Any]] = (404, {})
SERVED = [crd(name, Established="True") for name in NAMES]


def applied(server: Server, folder: Path, *flags: str) -> Result:
    return CliRunner().invoke(main, ["crds", "apply", "--kubeconfig", kubeconfig(folder, server.url), *flags])


def test_each_is_written_waited_for_and_named_with_what_became_of_it(server: Server, tmp_path: Path) -> None:
    new, older, same = NAMES
    written = [crd(new), crd(older, generation=2), crd(same)]
    server.answers = [ABSENT, crd(older, "0.0.1"), crd(same), *written, *SERVED]
    done = applied(server, tmp_path)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        f"applying the CRDs of release {__version__} to {server.url} (context here of kubeconfig {tmp_path}/kubeconfig)",
        f"{new}: created, of release {__version__}",
        f"{older}: changed from release 0.0.1 to {__version__}",
        f"{same}: is of release {__version__} already",
        "the API server serves all 3",
    ]
    read = [("GET", f"{CRDS}/{name}", "") for name in NAMES]
    assert [(verb, path, body["metadata"]["name"] if body else "") for verb, path, _, body in server.asked] == [
        *read,
        *(("PATCH", f"{CRDS}/{name}?fieldManager=helm&force=true", name) for name in NAMES),
        *read,
    ]


def test_one_of_a_newer_release_stays_unless_that_is_asked_for(server: Server, tmp_path: Path) -> None:
    newer = crd(NAMES[0], "99.0.0")
    server.answers = [newer]
    done = applied(server, tmp_path)
    assert (done.exit_code, len(server.asked)) == (1, 1)
    assert f"Error: {NAMES[0]} is of release 99.0.0, newer than this program's {__version__}" in done.stderr
    server.answers = [newer, ABSENT, ABSENT, *map(crd, NAMES), *SERVED]
    done = applied(server, tmp_path, "--allow-downgrade")
    assert done.exit_code == 0, done.output
    assert f"{NAMES[0]}: changed from release 99.0.0 to {__version__}" in done.stdout.splitlines()


def test_names_that_another_definition_has_are_never_served(server: Server, tmp_path: Path) -> None:
    server.answers = [ABSENT] * 3 + [*map(crd, NAMES), crd(NAMES[0], NamesAccepted="False")]
    done = applied(server, tmp_path)
    assert done.exit_code == 1
    assert "another definition has its names: m" in done.stderr
