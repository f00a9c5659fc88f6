"""The command nodedevice-agent. Imports the commands as cheaply as it can: a start is mostly imports."""

import gc
import os
import sys
from contextlib import suppress

_ALLOCATOR = "PYTHONMALLOC"
_OPTIMIZE = "PYTHONOPTIMIZE"
_WITHOUT_DOCSTRINGS = "2"
_MEMORY = {
    # What is larger comes from the kernel, and goes back to it at once. The C library begins so, and asks for ever larger ones
    # itself when such have been freed.
    "MALLOC_MMAP_THRESHOLD_": "131072",
    # Each thread would keep some of what it has freed, hundreds of pieces in as many pages, and none of it is given back; and what
    # one has freed, another would not use.
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1",
}
# How long a thread that decodes what others sent goes on while the event loop waits to run: Python's five milliseconds come at each
# of the turns that an answer to the container runtime takes.
_SWITCH_SECONDS = 0.001
# Python looks for rings of garbage among old objects after ten searches among younger ones. With 100 MiB of objects that takes
# 80 ms, in which neither the event loop nor a thread runs. It is done after so many; lib/memory asks for it where much has ended.
_OLD_GENERATION = 1000


def _in_less_memory() -> None:
    """Start this program once more, in its place, with the C library's allocator, unless the environment names one already.

    Python's own gives back to the kernel a MiB of small objects at once or not at all, and after a hundred MiB of device lists
    some object is left in most of them. The C library does it by the page (lib/memory). Docstrings, ours and the libraries', take
    2.5 MiB; they are left out where the modules are compiled without them, as in the images. It costs ten milliseconds.
    """
    if sys.executable and _ALLOCATOR not in os.environ:
        command = [sys.executable, *sys.orig_argv[1:]]
        compiled = {_OPTIMIZE: _WITHOUT_DOCSTRINGS} if _is_compiled_without_docstrings() else {}
        with suppress(OSError):
            os.execve(sys.executable, command, {**_MEMORY, **compiled, **os.environ, _ALLOCATOR: "malloc"})


def _is_compiled_without_docstrings() -> bool:
    """Else each start would compile all modules, in memory that stays."""
    cached = __spec__.cached if __spec__ is not None else None
    return cached is not None and os.path.isfile(f"{cached.removesuffix('.pyc')}.opt-{_WITHOUT_DOCSTRINGS}.pyc")


def main() -> None:
    """Call the command that is named."""
    # the other commands end soon
    if sys.argv[1:2] == ["run"]:
        # help is made of docstrings
        if {"-h", "--help"}.isdisjoint(sys.argv):
            _in_less_memory()
        sys.setswitchinterval(_SWITCH_SECONDS)
    # Modules live as long as the process. Looking for garbage among their 60,000 objects takes a tenth of the start, and would
    # pause the agent for 50 ms whenever it is done later.
    gc.disable()
    from nodedevice_common.safe_output import guard_output

    from nodedevice_agent.cli.run import main as commands

    guard_output()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _OLD_GENERATION)
    gc.enable()
    commands()


if __name__ == "__main__":
    main()
