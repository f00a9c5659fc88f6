"""Flags, environment, file and defaults, in that order; and errors that name the key."""

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from nodedevice_operator import __main__, settings
from nodedevice_operator.errors import OperatorSettingsError
from nodedevice_operator.settings import OperatorSettings

from tests.examples import examples


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("zzz: 1", "unknown field `zzz`; known are agentGraceSeconds,"),
        ("logFormat: xml", "Invalid enum value 'xml'"),
        ("httpAddress: ':99999'", "':99999' is not host:port"),
        ("leasesNamespace: ''", "leasesNamespace: '' is not a namespace: 1 to 63 of a-z, 0-9 and -"),
        ("instance: a b", "instance: 'a b' is not a label value"),
        ("namespace: ../x", "namespace: '../x' is not a namespace"),
        ("heldDevicePolicy: {'': evict}", "heldDevicePolicy: '': must be domain/name, such as vendor.com/gpu; * is"),
        ("heldDevicePolicy: {Vendor.com/gpu: evict}", "the part before the slash must be a lower-case DNS name"),
        (
            "heldDevicePolicy: {a.b/d: bar}",
            "'bar' - at `$.heldDevicePolicy[...]`, of a.b/d; choose one of evict, report",
        ),
        ("requiredPluginNames: []", "requiredPluginNames: needs at least one pattern; * allows every"),
        ("requiredPluginNames: ['*', 'a b']", "requiredPluginNames: 'a b' is not a resource name, with * for any"),
        ("a: b: c", "is not YAML"),
        ("a: 2001-99-99", "is not YAML (month must be in 1..12"),
        ("[" * 1000, "is not YAML"),
        ("text", "must be a mapping"),
    ],
)
def test_errors_name_the_key(tmp_path: Path, content: str, expected: str) -> None:
    file = tmp_path / "operator.yaml"
    file.write_text(content)
    with pytest.raises(OperatorSettingsError) as refused:
        settings.load(file, {})
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("values", "flag", "problem"),
    [
        (
            ["a/b=evict", "a/c=bar"],
            "held-device-policy",
            "Invalid enum value 'bar', of a/c; choose one of evict, report",
        ),
        (["0"], "agent-poll-seconds", "Expected `float` >= 0.5"),
    ],
)
def test_errors_name_the_flag_also_where_there_is_a_file(
    values: list[str], flag: str, problem: str, tmp_path: Path
) -> None:
    file = tmp_path / "operator.yaml"
    file.write_text("logLevel: debug\n")
    variable = f"NODEDEVICE_{flag.upper().replace('-', '_')}"
    for options in ([], ["--config", str(file)]):
        done = CliRunner().invoke(__main__.main, ["run", *options, *(f"--{flag}={value}" for value in values)])
        assert (done.exit_code, done.output) == (2, f"nodedevice-operator: --{flag} ({variable}): {problem}\n")


def test_a_file_that_is_not_there() -> None:
    error = r"/nowhere/operator.yaml: cannot be read \(No such file or directory\)"
    with pytest.raises(OperatorSettingsError, match=error):
        settings.load(Path("/nowhere/operator.yaml"), {})


@hypothesis_settings(max_examples=examples(50), deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)
    )
)
def test_any_file_is_settings_or_one_error(tmp_path_factory: pytest.TempPathFactory, content: Any) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(msgspec.json.encode(content))
    with contextlib.suppress(OperatorSettingsError):
        assert isinstance(settings.load(file, {}), OperatorSettings)


def test_help_names_every_setting_and_the_environment() -> None:
    text = CliRunner().invoke(__main__.main, ["run", "--help"]).output
    for field in msgspec.structs.fields(OperatorSettings):
        assert f"--{field.name.replace('_', '-')}" in text
    assert "NODEDEVICE_LOG_LEVEL" in text
    assert CliRunner().invoke(__main__.main, ["--version"]).output.startswith("nodedevice-operator, version 0.")
