"""The start of the zipapp: unpacks and compiles its content once, into the user's cache folder, and runs from there.

A folder counts only if it belongs to the user and no other user can write it; without such a folder, the program runs
from the zip. Its own lines are for Python 3.6 on, so that an old one prints a sentence.
"""

import os
import sys

# replaced by a hash of the zip's content
CONTENT = "@CONTENT@"
OLDEST = (3, 11)
# seconds after which the unused folder of another release is removed
_UNUSED = 30 * 24 * 3600


def main() -> None:
    if sys.version_info < OLDEST:
        version = ".".join(map(str, sys.version_info[:2]))
        sys.exit(
            f"error: kubectl nodedevice needs Python 3.11 or newer, and this is {version}; start it by a newer one"
        )
    folder = unpacked(sys.path[0])
    if folder:
        sys.path[0] = folder
    from kubectl_nodedevice.__main__ import main as run

    run()


def unpacked(archive: str) -> str:
    """The folder with its content; "" if it runs from the archive."""
    try:
        base = cache_folder()
        folder = os.path.join(base, f"{CONTENT}-{sys.version_info[0]}.{sys.version_info[1]}")
        if not is_own(folder):
            if not prepared(base):
                return ""
            unpack(archive, base, folder)
        if not is_own(folder):
            return ""
        # so that folders in use stay
        os.utime(folder)
        return folder
    except (OSError, RuntimeError, ValueError):
        return ""


def cache_folder() -> str:
    """Raises ValueError if the user has none."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        home = os.path.expanduser("~")
        if os.environ.get("HOME") == "" or not os.path.isabs(home):
            raise ValueError(home)
        cache = os.path.join(home, ".cache")
    return os.path.join(cache, "nodedevice", "kubectl")


def is_own(folder: str) -> bool:
    """Whether it is a folder, no link, of this user, and no other user can write it."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return (found.st_mode & 0o170000) == 0o040000 and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def prepared(base: str) -> bool:
    """Make the folder, if all its existing parents belong to the user: root writes nothing into another user's home."""
    above = base
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if above != base and os.stat(above).st_uid != os.geteuid():
        return False
    os.makedirs(base, mode=0o700, exist_ok=True)
    return is_own(base)


def unpack(archive: str, base: str, folder: str) -> None:
    """Unpacked next to it, and renamed when complete: a concurrent start finds all of it, or nothing."""
    import compileall
    import shutil
    import tempfile
    import zipfile

    made = tempfile.mkdtemp(prefix=".new-", dir=base)
    try:
        with zipfile.ZipFile(archive) as content:
            content.extractall(made)
        compileall.compile_dir(made, quiet=2, ddir=folder)
        if os.path.lexists(folder):
            # another user's, or writable by others: never used, and never removed
            raise RuntimeError(folder)
        os.rename(made, folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    forget_others(base, folder)


def forget_others(base: str, folder: str) -> None:
    """Remove folders of other releases, and leftovers of a killed run."""
    import shutil
    import time

    for name in os.listdir(base):
        other = os.path.join(base, name)
        if other != folder and time.time() - os.lstat(other).st_mtime > _UNUSED:
            shutil.rmtree(other, ignore_errors=True)
