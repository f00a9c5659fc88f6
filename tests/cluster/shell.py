"""The environment of a shell for a cluster that was started here."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.build.binaries import find


def shell_environment(kubeconfig: Path, home: Path, first: Sequence[Path] = ()) -> dict[str, str]:
    """first: folders that PATH lists before our programs and the cluster's kubectl."""
    folders = [*first, Path(sys.executable).parent, find(["kubectl"])["kubectl"].parent]
    path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "KUBECONFIG": str(kubeconfig), "HOME": str(home)}
