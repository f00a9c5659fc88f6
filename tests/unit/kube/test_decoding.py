"""The one entrance for what others have written: each way to be none of it is one error, which quotes nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nodedevice_kube import decoding, fields
from nodedevice_kube.decoding import Undecodable
from nodedevice_kube.depth import DEEPEST


@pytest.mark.parametrize("text", ['{"a": [1]}', ' {"a": [1]}', "{a: [1]}", "a: [1]", "---\na: [1]\n---\n"])
def test_one_document(text: str) -> None:
    assert decoding.decode_yaml(text) == {"a": [1]}


def test_documents() -> None:
    assert decoding.decode_documents("a: 1\n---\n---\n- 2\n") == [{"a": 1}, [2]]
    assert decoding.decode_yaml("") is None
    assert decoding.decode_json(b'{"a": 1}') == {"a": 1}


@pytest.mark.parametrize("before", ["", " ", "\n\n"])
def test_json_is_read_as_json_wherever_it_begins(before: str) -> None:
    """Which has characters that YAML has not."""
    assert decoding.decode_yaml(before + r'{"a": "\ud83d\ude00"}') == {"a": "\U0001f600"}


def test_without_the_library_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where its wheel is for Python alone."""
    monkeypatch.delattr("yaml.CSafeLoader", raising=False)
    assert decoding.decode_documents("a: [1]") == [{"a": [1]}]


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


_YAML, _JSON = decoding.decode_yaml, decoding.decode_json
_SECRET = "hunter2"
_LAUGHS = "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'ha'] * 10)}]" for i in range(10))


@pytest.mark.parametrize(
    ("decode", "text", "why"),
    [
        (_YAML, "a: 1\n---\nb: 2\n", "it has several documents"),
        (_YAML, f"\n{_SECRET}: [\n", "it is not YAML: did not find expected node content in line 3"),
        (_YAML, "a: !!timestamp 2026-99-99", "it is not YAML"),
        (_YAML, f"- {nested(DEEPEST)}", f"it is nested deeper than {DEEPEST} levels"),
        (_YAML, "a: &a [1, [*a]]", "it has an alias that holds itself"),
        (_YAML, _LAUGHS, "it has more than 200000 values, aliases included"),
        (_JSON, f'{{"{_SECRET}"', "it is not JSON: Expecting ':' delimiter in line 1"),
        (_JSON, '{\n"a": x}', "it is not JSON: Expecting value in line 2"),
        (_JSON, nested(100_000)[:-1], "it is not JSON: Expecting ',' delimiter in line 1"),
    ],
)
def test_what_is_no_yaml_or_json_that_people_write(decode: Callable[[str], Any], text: str, why: str) -> None:
    with pytest.raises(Undecodable) as error:
        decode(text)
    assert str(error.value) == why


def test_bounds_that_are_met() -> None:
    assert decoding.decode_yaml(nested(DEEPEST)) is not None
    assert len(decoding.decode_yaml("- &a [1]\n" + "- *a\n" * DEEPEST)) == DEEPEST + 1
    # ... and as many beside one another
    assert len(decoding.decode_yaml("- [1]\n" * (DEEPEST + 9))) == DEEPEST + 9
    # an alias beside another
    assert decoding.decode_yaml("- &a [1]\n- &b [2]\n- *a\n- *b") == [[1], [2], [1], [2]]


def test_too_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_MOST_VALUES", 9)
    # the list counts as well
    assert len(decoding.decode_yaml("[1, 2, 3, 4, 5, 6, 7, 8]")) == 8
    with pytest.raises(Undecodable, match="more than 9 values"):
        decoding.decode_yaml("[1, 2, 3, 4, 5, 6, 7, 8, 9]")


def test_what_is_nested_too_deep_is_cut() -> None:
    """As any tenant may have it in managedFields of a pod."""
    deep = f'{{"a": {nested(1_100)}, "b": {nested(100_000)}, "c": 1}}'
    found = decoding.decode_json(deep.encode())
    assert decoding.decode_json(deep) == found
    assert (list(found), found["c"]) == (["a", "b", "c"], 1)
    assert str(found).count("[") < 2 * DEEPEST


def test_a_key_that_is_there_twice() -> None:
    text = "plugins:\n  generic: [1]\n  nvml: {}\n  generic: [2]\n"
    assert decoding.decode_documents(text) == [{"plugins": {"generic": [2], "nvml": {}}}]
    with pytest.raises(Undecodable) as error:
        decoding.decode_documents(text, is_strict=True)
    why = "it has the key generic twice, in line 2 and in line 4: put what both have below one"
    assert str(error.value) == why
    for other in ("a: &x {b: 1}\nc: {<<: *x, b: 2}", '{"a": {"b": 1}, "c": {"b": 1}}', "[a, a]"):
        assert decoding.decode_documents(other, is_strict=True) == decoding.decode_documents(other)


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "f"
    for content, why in ((None, "No such file or directory"), (b"\xff", "it is not UTF-8 text")):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(Undecodable) as error:
            decoding.read_text(file)
        assert str(error.value) == why
    file.write_text("é")
    assert decoding.read_text(file) == "é"


_OBJECT: dict[str, Any] = {
    "text": "t",
    "number": 7,
    "float": 1.5,
    "true": True,
    "list": [{"a": 1}, "x", 3, True, None],
    "map": {"a": "x", "b": 2, "c": 1.5, "d": [], "e": None},
}


@pytest.mark.parametrize("name", ["text", "number", "float", "true", "list", "map", "absent"])
def test_a_field_of_another_form_has_its_default(name: str) -> None:
    assert fields.text_of(_OBJECT, name) == {"text": "t"}.get(name, "")
    assert fields.number_of(_OBJECT, name) == {"number": 7}.get(name, 0)
    assert fields.is_set(_OBJECT, name) is (name == "true")
    assert fields.map_of(_OBJECT, name) == (_OBJECT["map"] if name == "map" else {})
    assert fields.list_of(_OBJECT, name) == (_OBJECT["list"] if name == "list" else [])
    assert fields.value_at(_OBJECT, name) == _OBJECT.get(name)
    assert fields.value_at(_OBJECT, name, "deeper") is None


def test_maps_keep_what_is_of_their_kind() -> None:
    assert fields.texts_of(_OBJECT, "map") == {"a": "x", "b": "2", "c": "1.5"}
    assert fields.text_of(_OBJECT, "map", "a") == "x"


@pytest.mark.parametrize("text", ["2026-01-01", "2026-01-01T00:00:00Z", "10:30", "12:34.5", "="])
def test_what_only_yaml_has_is_a_text(text: str) -> None:
    assert decoding.decode_yaml(f"name: {text}") == {"name": text}
    assert decoding.decode_documents(f"{text}: 7", is_strict=True) == [{text: 7}]


def test_numbers_remain_numbers() -> None:
    assert decoding.decode_yaml("[7, -0x1f, 1_000, 1.5, .inf]") == [7, -31, 1000, 1.5, float("inf")]
