"""System calls of a running program: which may fail, with which errors, and which no test lets fail, and why.

A call that the program makes and that is in neither table fails the test: so that none is forgotten.
"""

from collections.abc import Iterable, Mapping
from typing import Final

# by the kind of a call: errors, and the calls
_KINDS: Final = {
    "makes a name": ("ENOSPC EIO EACCES ENAMETOOLONG", "mkdir mkdirat rename renameat2 symlink link linkat"),
    "opens": ("ENOSPC EIO EACCES EMFILE ENAMETOOLONG", "open openat creat"),
    "removes or changes a name": ("EIO EACCES", "unlink unlinkat rmdir chmod fchmod fchmodat chown fchown utimensat"),
    "asks about a name": (
        "EIO EACCES ENAMETOOLONG",
        "stat lstat newfstatat statx access faccessat2 readlink readlinkat getcwd statfs",
    ),
    "asks about an open file": ("EIO", "fstat fstatfs"),
    "lists a directory": ("EIO", "getdents64"),
    "reads": ("EIO", "read pread64 readv"),
    "writes": ("ENOSPC EIO", "write pwrite64 writev"),
    "makes durable, or long": ("ENOSPC EIO", "fsync fdatasync ftruncate fallocate"),
    "locks a file": ("EIO EAGAIN", "flock"),
    "makes a descriptor": ("EMFILE", "socket socketpair pipe pipe2 eventfd2 inotify_init1 dup dup2 dup3 memfd_create"),
    "takes a connection": ("EMFILE", "accept accept4"),
    "connects": ("EACCES EAGAIN", "connect"),
    "serves": ("EACCES", "bind listen"),
    "sends and receives": ("EIO", "sendmsg sendmmsg recvmsg recvmmsg"),
    # Who waits asks again. Of what gRPC reads and writes the kernel says EAGAIN once, and announces a change, as strace cannot do.
    "sends and receives, in Python": ("EIO EAGAIN", "sendto recvfrom"),
    "watches a directory": ("ENOSPC EACCES", "inotify_add_watch"),
    "starts a thread": ("EAGAIN", "clone clone3"),
}

# by reason: no program survives a failure of these, or none of those errors is theirs
_NEVER: Final = {
    "memory: an interpreter without it cannot even raise": (
        "mmap munmap mprotect madvise brk mremap mlock munlock membarrier"
    ),
    "locks of threads: libraries abort, as they could only go on without the lock": (
        "futex sched_yield rseq set_robust_list get_robust_list"
    ),
    "waits for events: a loop that cannot wait is none": (
        "epoll_wait epoll_pwait epoll_pwait2 epoll_ctl epoll_create1 poll ppoll select pselect6 "
        "restart_syscall clock_nanosleep nanosleep"
    ),
    "closes: the kernel does so whatever it answers, and with strace it would not be done": "close shutdown",
    "flags and names of an open descriptor: only a mistake of the program's own makes them fail": (
        "fcntl ioctl lseek setsockopt getsockopt getsockname getpeername inotify_rm_watch"
    ),
    "time, chance, and what a process is: never for want of anything": (
        "clock_gettime gettimeofday getrandom getpid gettid getppid getuid geteuid getgid getegid getrusage sysinfo uname "
        "sched_getaffinity sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min getcpu prctl "
        "times prlimit64 umask"
    ),
    "signals, and ends of threads and processes": (
        "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigtimedwait sigaltstack tgkill kill exit exit_group wait4 waitid"
    ),
}

# Pairs of a call and an error, or parts of a line of strace, of which nothing need be logged, and why.
QUIET: Final = {
    "sendto EAGAIN": "no failure: it is tried again when the kernel says so",
    "recvfrom EAGAIN": "likewise",
    "/proc/": "of the program itself, for its metrics: the page is shown without",
    "AT_EMPTY_PATH)": "Python's, of a file that it has opened: it would know a better size of its buffer",
    " mkdir(": "the directory is there, which is all that is wanted",
    " stat(": "gRPC's, of a socket that is renamed by then: a file that it would remove",
}

ERRORS: Final[Mapping[str, tuple[str, ...]]] = {
    call: tuple(errors.split()) for errors, calls in _KINDS.values() for call in calls.split()
}
NEVER: Final[Mapping[str, str]] = {call: reason for reason, calls in _NEVER.items() for call in calls.split()}


def uncategorized(calls: Iterable[str]) -> list[str]:
    """Those that nobody has decided about."""
    return sorted(set(calls) - ERRORS.keys() - NEVER.keys())
