"""The project as it is in the working tree, committed: what a release is made of."""

import subprocess
from pathlib import Path

_ROOT = Path(__file__).parents[3]
_COMMIT = ("-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "--quiet", "--message=test")


def committed_copy(clone: Path) -> Path:
    """Make a repository of one commit with every file that git knows or would know. Returns `clone`."""
    listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listing, cwd=_ROOT, check=True, capture_output=True, text=True).stdout
    for name in names.split("\0"):
        if name and (_ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            (clone / name).write_bytes((_ROOT / name).read_bytes())
    for command in (("init", "--quiet"), ("add", "--all"), _COMMIT):
        subprocess.run(["git", *command], cwd=clone, check=True)
    return clone
