"""The command nodedevice-agent. Imports as little as possible: imports take most of a start."""

import gc
import os
import sys
from contextlib import suppress

_ALLOCATOR = "PYTHONMALLOC"
_OPTIMIZE = "PYTHONOPTIMIZE"
_WITHOUT_DOCSTRINGS = "2"
_MEMORY = {
    # Larger blocks come from the kernel, and return to it at once. This is the C library's initial threshold, which it raises after
    # such blocks were freed.
    "MALLOC_MMAP_THRESHOLD_": "131072",
    # Otherwise each thread keeps hundreds of freed pieces in as many pages, which are never released, and which other threads
    # do not use.
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1",
}
# How long a decoding thread runs on while the event loop waits. A response to the container runtime takes several turns, and each
# would wait for Python's default of five milliseconds.
_SWITCH_SECONDS = 0.001
# Python collects old objects after ten collections of younger ones. With 100 MiB of objects this stops the event loop and all
# threads for 80 ms. So it runs after this number of collections; lib/memory starts it after large objects were freed.
_OLD_GENERATION = 1000


def _in_less_memory() -> None:
    """Replace this process by the same program with the C library's allocator, unless the environment names an allocator.

    Python's allocator returns only whole MiB to the kernel, and after a hundred MiB of device lists most of these still have an
    object. Docstrings take 2.5 MiB; they are dropped if the modules are compiled without them, as in the images. It costs ten
    milliseconds.
    """
    if sys.executable and _ALLOCATOR not in os.environ:
        command = [sys.executable, *sys.orig_argv[1:]]
        compiled = {_OPTIMIZE: _WITHOUT_DOCSTRINGS} if _is_compiled_without_docstrings() else {}
        with suppress(OSError):
            os.execve(sys.executable, command, {**_MEMORY, **compiled, **os.environ, _ALLOCATOR: "malloc"})


def _is_compiled_without_docstrings() -> bool:
    """Whether compiled modules exist: else each start would compile all modules, in memory that stays."""
    cached = __spec__.cached if __spec__ is not None else None
    return cached is not None and os.path.isfile(f"{cached.removesuffix('.pyc')}.opt-{_WITHOUT_DOCSTRINGS}.pyc")


def main() -> None:
    """Run the command from the arguments."""
    # the other commands end soon
    if sys.argv[1:2] == ["run"]:
        # help is made of docstrings
        if {"-h", "--help"}.isdisjoint(sys.argv):
            _in_less_memory()
        sys.setswitchinterval(_SWITCH_SECONDS)
    # Modules live as long as the process. A collection among their 60,000 objects takes a tenth of the start, and a later one
    # would pause the agent for 50 ms.
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
