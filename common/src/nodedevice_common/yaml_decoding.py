"""The entrance for YAML: files that people write. As `decoding`, with one error for whatever the library raises."""

from typing import Any, Final

import yaml

from nodedevice_common.decoding import DEEPEST, Undecodable

# Values, with what aliases repeat. Each takes 300 bytes while it is decoded, and 10 µs; a CDI specification has some ten for each
# device.
_MOST: Final = 100_000


def _quick_loader() -> type[Any]:
    """Parses in C, one event after the other, which takes a tenth of the time. The library's own loader in C composes a document in
    one call, in which no other thread runs: seconds for a megabyte. Here this is done in Python.
    """
    in_c: Any = getattr(yaml, "CSafeLoader", None)
    if in_c is None:
        return yaml.SafeLoader

    def begin(self: Any, stream: Any) -> None:
        in_c.__init__(self, stream)
        yaml.composer.Composer.__init__(self)

    return type("QuickLoader", (yaml.composer.Composer, in_c), {"__init__": begin})


QUICK_LOADER: Final = _quick_loader()


def decode_yaml(text: bytes | str, loader: type[Any] = yaml.SafeLoader) -> Any:
    """What the one document holds, None where there is none. Raises Undecodable: a yaml.YAMLError is its cause, with the place.

    The library in C calls itself for each level until its thread's stack overflows, and a few aliases of aliases are billions of
    values. So both are counted first.
    """
    try:
        _check_size(text, loader)
        return yaml.load(text, Loader=loader)
    except Exception as exc:
        # odd dates, empty numbers and half characters leave the library as half a dozen exceptions besides its own
        raise Undecodable(exc) from exc


def _check_size(text: bytes | str, loader: type[Any]) -> None:
    """Raises ValueError for what is deeper or more than any settings are; YAMLError for what is no YAML."""
    # height and number of values, by anchor, and of each collection that is open
    known: dict[str, tuple[int, int]] = {}
    is_open: list[tuple[str | None, int, int]] = [(None, 0, 0)]
    for event in yaml.parse(text, Loader=loader):
        match event:
            case yaml.CollectionStartEvent():
                is_open.append((event.anchor, 0, 1))
                if len(is_open) > DEEPEST + 1:
                    raise ValueError(f"it is nested deeper than {DEEPEST} levels")
                continue
            case yaml.CollectionEndEvent():
                anchor, height, count = is_open.pop()
                height += 1
            case yaml.ScalarEvent():
                anchor, height, count = event.anchor, 0, 1
            case yaml.AliasEvent():
                if any(event.anchor == each for each, _, _ in is_open):
                    raise ValueError(f"*{event.anchor} holds itself")
                # of an anchor that there is not, the library reports
                anchor, (height, count) = None, known.get(event.anchor or "", (0, 1))
            case _:
                continue
        if anchor is not None:
            known[anchor] = (height, count)
        outer, highest, before = is_open[-1]
        is_open[-1] = (outer, max(highest, height), before + count)
        if len(is_open) - 1 + height > DEEPEST:
            raise ValueError(f"it is nested deeper than {DEEPEST} levels, with its aliases")
        if before + count > _MOST:
            raise ValueError(f"it has more than {_MOST} values, with what its aliases repeat")
