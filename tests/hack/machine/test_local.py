"""What `make up MACHINE=1` tells its user to paste."""

import os
import subprocess
from pathlib import Path

from hack.machine.local import kubectl_alias


def test_the_alias_is_kubectl_wherever_the_folders_are(tmp_path: Path) -> None:
    folder = tmp_path / "somebody's own"
    folder.mkdir()
    nsenter = folder / "nsenter"
    nsenter.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    nsenter.chmod(0o755)
    pasted = f"shopt -s expand_aliases\n{kubectl_alias(folder / 'kubectl', folder / 'kubeconfig')}\nkubectl get nodes\n"
    ran = subprocess.run(
        ["bash"],
        input=pasted,
        env={"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    arguments = ["--net", "--target", str(os.getpid()), f"{folder}/kubectl", "--kubeconfig", f"{folder}/kubeconfig"]
    assert ran.stdout.splitlines() == [*arguments, "get", "nodes"]
