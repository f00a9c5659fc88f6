"""The lines that `make up` prints, without a cluster."""

from pathlib import Path

from hack.cluster.local.how_to_use import TYPED, lines
from hack.cluster.local.stack import NODE_A


def test_it_prints_where_metrics_are() -> None:
    addresses = {"agent of node-a": "127.0.0.1:1", "operator": "127.0.0.1:2"}
    printed = lines(
        Path("/up"), Path("/up/config"), Path("/bin/kubectl"), {NODE_A: Path("/up/a")}, addresses, ["a note"]
    )
    assert "# metrics of the agent of node-a: http://127.0.0.1:1/metrics" in printed
    assert "# metrics of the operator: http://127.0.0.1:2/metrics" in printed
    # lines to paste, comments, and commands behind a #
    assert all(line.startswith(("export ", "# ", TYPED)) for line in printed)
    assert "# a note" in printed
