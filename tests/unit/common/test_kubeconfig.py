"""What a kubeconfig names, and that no error quotes one; both programs' tests have more."""

from pathlib import Path

import pytest
import yaml
from nodedevice_common.kubeconfig import ContextEntry, Kubeconfig, KubeconfigProblem, UserEntry, _problem, read

SECRET = "c2VjcmV0"


def test_the_current_context_names_its_user(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(
        "current-context: x\n"
        "contexts: [{name: x, context: {user: u, namespace: n}}, {name: y, context: null}]\n"
        "users: [{name: u, user: {tokenFile: t}}]\n"
    )
    raw, form = read(file)
    assert raw["current-context"] == "x"
    assert form.current() == (ContextEntry("u", "n"), UserEntry("t"))


def test_a_file_of_several_may_leave_out_anything() -> None:
    assert Kubeconfig().current() == (ContextEntry(), UserEntry())


@pytest.mark.parametrize("text", [f"token: [{SECRET}", f"users: {SECRET}", f"{SECRET}", f"users: [{{{SECRET}: x}}]"])
def test_no_error_quotes_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    with pytest.raises(KubeconfigProblem) as refused:
        read(tmp_path / "kubeconfig")
    assert SECRET not in str(refused.value)


def test_where_it_is_no_yaml_the_error_says_in_which_line_if_that_is_known(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text("users:\n- name: [\n")
    with pytest.raises(KubeconfigProblem, match=r"it is not YAML: .* in line 3$"):
        read(tmp_path / "kubeconfig")
    assert _problem(yaml.MarkedYAMLError(problem="odd")) == "it is not YAML: odd"
    assert _problem(RecursionError()) == _problem(None) == "it is not YAML"
