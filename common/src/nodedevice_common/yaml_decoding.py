"""Decodes the YAML files that people write, with one error for every error of the library, as `decoding` does."""

from collections.abc import Iterator
from typing import Any, Final

import yaml

from nodedevice_common.decoding import DEEPEST, TooMuch, Undecodable
from nodedevice_common.yaml_nodes import Mapping, Node, Scalar

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
    """The value of the only document, or None. Raises Undecodable: a yaml.YAMLError is its cause, with the place.

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
    """Raises ValueError for text deeper or larger than any settings; YAMLError for invalid YAML."""
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


def first_document(text: bytes, loader: type[Any] = yaml.SafeLoader) -> Node | None:
    """The nodes of the first document, or None, as go.yaml.in/yaml/v3 @ v3.0.5 reads them. Raises Undecodable,
    and TooMuch for more values than are read here.

    For a reader that has to decide as a program in Go does: which text is a number depends on the library. Further
    documents are not read. An alias is the node of its anchor itself. Another thread may run between any two nodes.
    Texts that libyaml reads and that library refuses are refused: `%YAML 1.2`, a backslash before a slash, as JSON may have it,
    and a question mark without quotes within brackets.
    """
    try:
        shown = _decoded(text) if rb"\/" in text else ""
        return _first_document(yaml.parse(text, Loader=loader), shown)
    except TooMuch:
        raise
    except Exception as exc:
        # as above
        raise Undecodable(exc) from exc


def _decoded(text: bytes) -> str:
    """As the positions of events count. Raises UnicodeDecodeError."""
    is_wide = text.startswith((b"\xff\xfe", b"\xfe\xff"))
    return text.decode("utf-16" if is_wide else "utf-8-sig")


def _first_document(events: Iterator[Any], text: str) -> Node | None:
    """text: in which a backslash may matter. Raises ValueError for text too deep or too large; YAMLError for invalid YAML."""
    root: list[Any] = []
    # the items of each collection that is open, of a mapping keys and values in turn; and whether it is in brackets
    is_open: list[tuple[list[Any], bool]] = [(root, False)]
    anchors: dict[str | None, Node] = {}
    count = 0
    for event in events:
        items, is_flow = is_open[-1]
        match event:
            case yaml.DocumentEndEvent():
                break
            case yaml.DocumentStartEvent() if event.version not in (None, (1, 1)):
                raise ValueError("%YAML of another version than 1.1")
            case yaml.CollectionEndEvent():
                is_open.pop()
                if isinstance(items, Mapping):
                    items[:] = [*zip(items[::2], items[1::2], strict=True)]
                continue
            case yaml.ScalarEvent():
                _check_scalar(event, text, is_flow=is_flow)
                node: Node = Scalar(event.value, event.tag or "", not event.style)
            case yaml.CollectionStartEvent():
                node = Mapping() if isinstance(event, yaml.MappingStartEvent) else []
                is_open.append((node, is_flow or bool(event.flow_style)))
                if len(is_open) > DEEPEST + 1:
                    raise ValueError(f"it is nested deeper than {DEEPEST} levels")
            case yaml.AliasEvent():
                node = _named(event.anchor, anchors, [each for each, _ in is_open])
            case _:
                continue
        count += 1
        if count > _MOST:
            raise TooMuch(ValueError(f"it has more than {_MOST} values"))
        if not isinstance(event, yaml.AliasEvent) and event.anchor is not None:
            anchors[event.anchor] = node
        items.append(node)
    return root[0] if root else None


def _check_scalar(event: Any, text: str, *, is_flow: bool) -> None:
    """Raises ValueError for what the library in Go refuses."""
    if is_flow and not event.style and "?" in event.value:
        raise ValueError(f"put {event.value[:100]!r} in quotes: it has a question mark")
    if text and event.style == '"':
        written = text[event.start_mark.index : event.end_mark.index]
        if r"\/" in written.replace(r"\\", ""):
            raise ValueError(f"{written[:100]} has a backslash before a slash")


def _named(anchor: str | None, anchors: dict[str | None, Node], is_open: list[list[Any]]) -> Node:
    """Raises ValueError."""
    if anchor not in anchors:
        raise ValueError(f"*{anchor} is an alias of nothing")
    if any(anchors[anchor] is each for each in is_open):
        raise ValueError(f"*{anchor} holds itself")
    return anchors[anchor]
