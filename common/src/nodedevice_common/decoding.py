"""Decodes all foreign JSON; every error of a decoder becomes one error.

An API server stores JSON nested 10,000 levels deep, in managedFields of any pod. Decoders call themselves for each level: Python
3.11 ends them after a thousand, and a higher limit crashes a thread with a small stack. So values nested deeper than DEEPEST become
null; no kind of the API has any there.

A form skips fields that it does not name. Values of any shape are cut at the same depth, so that they can be compared and logged.
"""

import json
import threading
from functools import cached_property
from typing import Any, Final, TypeVar, overload

import msgspec
from msgspec import inspect
from nodedevice_kube.depth import DEEPEST as DEEPEST
from nodedevice_kube.depth import shallow as shallow

T = TypeVar("T")

# of a library's words, which may quote a whole text
MOST_SHOWN: Final = 500

# Errors of decoders: invalid JSON, another form, invalid UTF-8, a number too big, nesting too deep.
FAILURES: Final = (ValueError, ArithmeticError, RecursionError)


class DuplicateKey(ValueError):
    """An object names a key twice."""


class Undecodable(ValueError):
    """The text does not decode. The reason is one sentence of bounded length."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(_sentence(cause)[:MOST_SHOWN])
        # whether it is JSON with a missing field, or one of the wrong type
        self.is_wrong_form = isinstance(cause, msgspec.ValidationError)


class TooMuch(Undecodable):
    """A limit of this reader; other readers may accept the text."""


@overload
def decode(data: bytes | str | msgspec.Raw, form: type[T]) -> T: ...
@overload
def decode(data: bytes | str | msgspec.Raw, form: Any) -> Any: ...
def decode(data: bytes | str | msgspec.Raw, form: Any) -> Any:
    """Return values of that form, with null in place of values nested deeper than DEEPEST. Raises Undecodable."""
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
    """Return a value of any shape. Raises Undecodable, also for duplicate keys: the decoder would keep the last one."""
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
    """Convert a decoded value. Raises Undecodable."""
    _decoder(form)
    try:
        return msgspec.convert(value, form)
    except FAILURES as exc:
        raise Undecodable(exc) from exc


def _octets(data: bytes | str | msgspec.Raw) -> bytes:
    """Raises UnicodeEncodeError for half a character."""
    return data.encode() if isinstance(data, str) else bytes(data)


class _Decoder:
    def __init__(self, form: Any) -> None:
        self.decode = msgspec.json.Decoder(form).decode
        self._form = form

    @cached_property
    def keeps_any_shape(self) -> bool:
        """Whether a part of the form takes any value. This takes milliseconds for a large form, such as settings."""
        return _keeps_any_shape(self._form)


# a program has some fifty forms
_decoders: dict[Any, _Decoder] = {}
# msgspec analyses a form at its first use; two threads that do so at once crash the interpreter
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
