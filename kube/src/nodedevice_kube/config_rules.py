"""Finds every mistake in settings, by the rules that `make generate` writes. Pure.

Rules are a CRD schema with `x-rules`, `x-keys` (of a map's keys), `x-or-empty`, `x-any`, `x-refused` and `x-example`.
The chart's template `_config_rules.tpl` applies the same rules.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from nodedevice_kube.config_checks import CHECKS, is_set

Rule = Mapping[str, Any]
# path and text of a mistake
Problem = tuple[str, str]
# problems of one document that are named
MOST: Final = 50
# a word is suggested if so many percent of its letters are in the other
_ALIKE: Final = 75
_LONGEST_SHOWN: Final = 40
_MOST_DIGITS: Final = 4
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_NAMES: Final = {
    "object": "an object with keys",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "a boolean",
}


def problems(value: Any, rule: Rule, path: str = "", root: Rule | None = None) -> Iterator[Problem]:
    """Yield the mistakes in a value. path: its place; "" for a whole document. root: the object in which the path begins."""
    root = rule if root is None else root
    if value is None and rule.get("nullable"):
        return
    if "x-refused" in rule:
        yield path, rule["x-refused"]
    if "x-any" in rule:
        tried = [[*problems(value, each, path, root)] for each in rule["x-any"]]
        if all(tried):
            yield tried[0][0]
    kind = rule.get("type")
    if kind and not _is_of(value, kind):
        yield path, _wrong_type(value, kind, rule)
        return
    if isinstance(value, dict):
        yield from _of_object(value, rule, path, root)
    elif isinstance(value, list):
        yield from _of_list(value, rule, path, root)
    elif problem := _of_scalar(value, rule):
        yield path, problem


def sentences(found: Iterator[Problem]) -> list[str]:
    """Return one sentence for each problem, at most MOST: each suggestion costs time."""
    shown = [f"{path or 'the document'}: {text}" for path, text in islice(found, MOST + 1)]
    # YAML and JSON have escapes for half a character, which terminals and logs reject
    shown = [text.encode(errors="backslashreplace").decode() for text in shown]
    return shown if len(shown) <= MOST else [*shown[:MOST], "and more"]


def closest(word: str, known: Sequence[str]) -> str:
    """Return the known word that resembles this one; "" if none does."""
    scored = [(_likeness(word, each), each) for each in sorted(known)]
    best = max((score for score, _ in scored), default=0)
    return next(each for score, each in scored if score == best) if best >= _ALIKE else ""


def _likeness(one: str, other: str) -> int:
    """Return the percentage of common letters, in any order and case."""
    one, other = one.lower()[:100], other.lower()
    both = sum(min(one.count(letter), other.count(letter)) for letter in set(one))
    return 200 * both // max(len(one) + len(other), 1)


def place_of(key: str, root: Rule) -> str:
    """Return the shallowest place whose objects have that key; "" if it is the root, or none has it."""
    level: list[tuple[str, Rule]] = [("", root)]
    while level:
        deeper: list[tuple[str, Rule]] = []
        for path, rule in level:
            suffix = ""
            while rule.get("type") == "array":
                rule, suffix = rule.get("items", {}), f"{suffix}[]"
            properties = rule.get("properties", {})
            if key in properties:
                return path + suffix
            deeper += [(below(path + suffix, name), each) for name, each in properties.items()]
        level = deeper
    return ""


def below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, (object,)))


def _wrong_type(value: Any, kind: str, rule: Rule) -> str:
    problem = f"{_shown(value)} is not {_NAMES.get(kind, kind)}"
    if kind == "string" and isinstance(value, int | float):
        example = rule.get("x-example", "")
        is_octal = len(example) == _MOST_DIGITS and isinstance(value, int) and 0 <= value < 8**_MOST_DIGITS
        written = (
            f" (YAML takes 0{value:o} without quotes for {value})" if is_octal and value not in (True, False) else ""
        )
        return f"{problem}: put it in quotes{f', such as {json.dumps(example)}' if example else ''}{written}"
    if isinstance(value, str) and kind in ("integer", "number", "boolean"):
        return f"{problem}: write {'true or false' if kind == 'boolean' else 'a number'} without quotes"
    if kind == "array":
        return f"{problem}: begin each entry with -"
    return f"{problem}: remove the key, or set it" if value is None else problem


def _of_object(value: dict[Any, Any], rule: Rule, path: str, root: Rule) -> Iterator[Problem]:
    is_clean = True
    for problem in _of_keys(value, rule, path, root):
        is_clean = False
        yield problem
    for each in rule.get("x-rules", ()):
        if "check" in each:
            if is_clean or each.get("always"):
                yield from CHECKS[each["check"]](value, path)
        elif _is_broken(value, each, rule):
            yield path, each["message"]


def _is_broken(value: Mapping[str, Any], each: Rule, rule: Rule) -> bool:
    properties = rule.get("properties", {})
    keys = each.get("oneOf") or each.get("anyOf") or each.get("excludes") or ()
    count = sum(is_set(value.get(key), properties.get(key, {})) for key in keys)
    return count == 0 if "anyOf" in each else count != 1 if "oneOf" in each else count == len(keys)


def _of_keys(value: dict[Any, Any], rule: Rule, path: str, root: Rule) -> Iterator[Problem]:
    properties, others = rule.get("properties"), rule.get("additionalProperties")
    for key in rule.get("required", ()):
        if key not in value:
            yield below(path, key), "is missing"
    if len(value) > rule.get("maxProperties", len(value)):
        yield path, f"has {len(value)} keys, and at most {rule['maxProperties']} are possible"
    for key, each in value.items():
        name = str(key)
        here = below(path, name)
        if not isinstance(key, str):
            yield here, "is a key that is not text: put it in quotes"
        elif properties and name in properties:
            yield from problems(each, properties[name], here, root)
        elif isinstance(others, dict):
            problem = _of_text(name, rule.get("x-keys", ()))
            if problem:
                yield here, problem
            yield from problems(each, others, here, root)
        elif properties is not None:
            yield here, f"unknown key; {_meant(name, properties, root)}"


def _meant(name: str, properties: Mapping[str, Any], root: Rule) -> str:
    if near := closest(name, [*properties]):
        return f"did you mean {near}?"
    if place := place_of(name, root):
        return f"it belongs below {place}"
    return f"known: {', '.join(sorted(properties))}" if properties else "no key is known"


def _of_list(value: list[Any], rule: Rule, path: str, root: Rule) -> Iterator[Problem]:
    least, most = rule.get("minItems", 0), rule.get("maxItems", len(value))
    if len(value) < least:
        yield path, f"has {len(value)} entries, and needs {least}"
    if len(value) > most:
        yield path, f"has {len(value)} entries, and at most {most} are possible"
    for at, each in enumerate(value[:most]):
        yield from problems(each, rule.get("items", {}), f"{path}[{at}]", root)
    for each in rule.get("x-rules", ()):
        if "alone" in each and each["alone"] in value and len(value) > 1:
            yield path, each["message"]


def _of_scalar(value: Any, rule: Rule) -> str:
    choices = rule.get("enum")
    if choices and value not in choices:
        known = [each if isinstance(each, str) else json.dumps(each) for each in choices]
        near = closest(str(value), known)
        return f"{_shown(value)} is not one of {', '.join(known)}{f'; did you mean {near}?' if near else ''}"
    if isinstance(value, str):
        least, most = rule.get("minLength", 0), rule.get("maxLength", len(value))
        if not least <= len(value) <= most:
            return f"has {len(value)} characters; {least} to {most} are possible"
        if not value and rule.get("x-or-empty"):
            return ""
        return _of_text(value, rule.get("x-rules", ())) or _of_pattern(value, rule)
    return _of_number(value, rule) if isinstance(value, int | float) else ""


def _of_pattern(value: str, rule: Rule) -> str:
    pattern = rule.get("pattern")
    return f"{_shown(value)} is not of the form {pattern}" if pattern and not _matches(pattern, value) else ""


def _of_text(value: str, rules: Sequence[Rule]) -> str:
    """Return the first mistake, with a corrected text if one is valid."""
    for each in rules:
        if _breaks(value, each):
            meant = next((fixed for fixed in _fixed(value, each) if not any(_breaks(fixed, one) for one in rules)), "")
            return f"{_shown(value)} {each['message']}{f'; did you mean {_shown(meant)}?' if meant else ''}"
    return ""


def _breaks(value: str, each: Rule) -> bool:
    return not _matches(each["is"], value) if "is" in each else _matches(each["not"], value)


def _fixed(value: str, each: Rule) -> Iterator[str]:
    for pattern, text in each.get("fixes", ()) if value else ():
        if pattern == "lower":
            first, slash, rest = value.partition("/")
            yield f"{first.lower()}{slash}{rest}"
        else:
            yield re.sub(pattern, text, value)


def _matches(pattern: str, value: str) -> bool:
    return _compiled(pattern).search(value) is not None


@lru_cache(maxsize=128)
def _compiled(pattern: str) -> "re.Pattern[str]":
    """In Go, $ is the end of the text, and no line feed may follow."""
    return re.compile(pattern.replace("$", r"\Z"))


def _of_number(value: float, rule: Rule) -> str:
    least, most = rule.get("minimum"), rule.get("maximum")
    too_small = least is not None and (value < least or (value == least and rule.get("exclusiveMinimum")))
    too_big = most is not None and (value > most or (value == most and rule.get("exclusiveMaximum")))
    return f"{_shown(value)} is not possible; {range_of(rule)} is" if too_small or too_big or value != value else ""


def range_of(rule: Rule) -> str:
    """Return words such as `1 to 1000`, or `more than 0, up to 3600`."""
    least, most = rule.get("minimum"), rule.get("maximum")
    if least is None:
        return "a number" if most is None else f"up to {most}"
    if rule.get("exclusiveMinimum"):
        return f"more than {least}" if most is None else f"more than {least}, up to {most}"
    return f"{least} or more" if most is None else f"{least} to {most}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
