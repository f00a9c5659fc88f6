"""The one entrance of what others have written: JSON becomes values, and whatever a decoder raises is one error.

An API server stores JSON that is nested 10,000 levels deep, in managedFields of any pod. Decoders call themselves for each level:
Python 3.11 ends them after a thousand, 3.12 after a number that nobody can raise, and where it may be raised a thread with a small
stack crashes. So nothing deep is decoded: what is nested deeper than DEEPEST becomes null, and no kind of the API has anything
there.

A form skips what it does not name. What it keeps of any shape is no deeper than that either, so that whatever is done with it
afterwards (comparing, copying, encoding, logging) needs no care.
"""

import json
import re
import threading
from itertools import accumulate
from typing import Any, Final, TypeVar, overload

import msgspec
from msgspec import inspect

T = TypeVar("T")

# Objects of Kubernetes have some 20 levels, managedFields included.
DEEPEST: Final = 64
# of a library's words, which may quote a whole text
MOST_SHOWN: Final = 500

# What decoders raise: for what is no JSON, of another form, no UTF-8, a number too big, nested too deep.
FAILURES: Final = (ValueError, ArithmeticError, RecursionError)

# Brackets within a string count for nothing. One without an end reaches to the end of the text. The possessive repeats try nothing
# twice, so that the time is in proportion to the text, whatever it is.
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_STRINGS: Final = re.compile(_STRING, re.DOTALL)
# every place where the depth changes; and strings whole
_TOKEN: Final = re.compile(_STRING + rb"|[\[{]|[\]}]", re.DOTALL)
_QUOTE: Final = ord('"')
_OPENING: Final = frozenset(b"[{")
_CHANGES: Final = [(octet in b"[{") - (octet in b"]}") for octet in range(256)]
_ALL_ELSE: Final = bytes(octet for octet, change in enumerate(_CHANGES) if not change)
_NULL: Final = b"null"


class DuplicateKey(ValueError):
    """An object names a key twice."""


class Undecodable(ValueError):
    """A text that does not decode; what is wrong with it in one sentence of bounded length."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(_sentence(cause)[:MOST_SHOWN])
        # whether it is JSON, and only a field is missing or of the wrong kind
        self.is_wrong_form = isinstance(cause, msgspec.ValidationError)


class TooMuch(Undecodable):
    """This reader's own limit: another one may accept the text."""


@overload
def decode(data: bytes | str | msgspec.Raw, form: type[T]) -> T: ...
@overload
def decode(data: bytes | str | msgspec.Raw, form: Any) -> Any: ...
def decode(data: bytes | str | msgspec.Raw, form: Any) -> Any:
    """Values of that form, with null for what is nested deeper than DEEPEST. Raises Undecodable."""
    try:
        decoder = _decoder(form)
        if decoder.keeps_any_shape:
            return decoder.decode(shallow(_octets(data)))
        try:
            return decoder.decode(data)
        except RecursionError:
            return decoder.decode(shallow(_octets(data)))
    except FAILURES as exc:
        raise Undecodable(exc) from exc


def decode_unique(text: str) -> Any:
    """What it holds, of any shape, if no object in it names a key twice: the decoder keeps the last one. Raises Undecodable."""
    found = decode(text, Any)
    try:
        json.loads(shallow(text.encode()), object_pairs_hook=_unique)
    except FAILURES as exc:
        raise Undecodable(exc) from exc
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise DuplicateKey(f"duplicate key `{key}`")
        found[key] = value
    return found


def convert(value: Any, form: type[T]) -> T:
    """The same of what is decoded already, without a form. Raises Undecodable."""
    _decoder(form)
    try:
        return msgspec.convert(value, form)
    except FAILURES as exc:
        raise Undecodable(exc) from exc


def shallow(data: bytes) -> bytes:
    """JSON with null for what is nested deeper than DEEPEST; the same bytes where nothing is. Any other text is as bad afterwards.

    For libraries that decode by themselves.
    """
    if _depth(data) <= DEEPEST:
        return data
    kept: list[bytes] = []
    depth = begin = 0
    for token in _TOKEN.finditer(data):
        first = data[token.start()]
        if first == _QUOTE:
            continue
        if first in _OPENING:
            depth += 1
            if depth == DEEPEST + 1:
                kept += (data[begin : token.start()], _NULL)
                begin = len(data)
        else:
            if depth == DEEPEST + 1:
                begin = token.end()
            depth -= 1
    return b"".join((*kept, data[begin:]))


def _depth(data: bytes) -> int:
    """A third of the time that it takes to find the places."""
    if (most := data.count(b"[") + data.count(b"{")) <= DEEPEST:
        return most
    brackets = _STRINGS.sub(b"", data).translate(None, _ALL_ELSE)
    return max(accumulate(map(_CHANGES.__getitem__, brackets)), default=0)


def _octets(data: bytes | str | msgspec.Raw) -> bytes:
    """Raises UnicodeEncodeError for half a character."""
    return data.encode() if isinstance(data, str) else bytes(data)


class _Decoder:
    """Of one form. keeps_any_shape: whether some place of it takes anything at all, however deep."""

    def __init__(self, form: Any) -> None:
        self.decode = msgspec.json.Decoder(form).decode
        self.keeps_any_shape = _keeps_any_shape(form)


# a program has some fifty forms
_decoders: dict[Any, _Decoder] = {}
# msgspec finds out about a form when it first meets it, and two threads that do that at once crash the interpreter
_meeting: Final = threading.Lock()


def _decoder(form: Any) -> _Decoder:
    found = _decoders.get(form)
    if found is None:
        with _meeting:
            found = _decoders.setdefault(form, _Decoder(form))
    return found


def _keeps_any_shape(form: Any) -> bool:
    rest: list[Any] = [inspect.type_info(form)]
    # a form may hold itself
    seen = set[int]()
    while rest:
        found = rest.pop()
        if isinstance(found, inspect.AnyType):
            return True
        if isinstance(found, inspect.Type | inspect.Field) and id(found) not in seen:
            seen.add(id(found))
            parts = msgspec.structs.asdict(found).values()
            rest += [part for each in parts for part in (each if isinstance(each, tuple) else (each,))]
    return False


def _sentence(cause: Exception) -> str:
    if isinstance(cause, RecursionError):
        return f"it is nested deeper than {DEEPEST} levels"
    if isinstance(cause, UnicodeDecodeError):
        return f"it is not UTF-8 text (byte {cause.start})"
    return " ".join(str(cause).split()) or type(cause).__name__
