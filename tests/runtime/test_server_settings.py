"""What is wrong with a server's file is said in one line."""

import pytest

from trmodel.errors import InputError
from trmodel.runtime.config import load_config


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_live: 3\nmax_live: 4\n", "is no YAML in line 2: max_live appears twice; keep one"),
        ("http: {port: 1, port: 1}\n", "is no YAML in line 1: port appears twice"),
        ("a: [\n", "is no YAML in line 2"),
        ("- a\n", "must hold named settings"),
        ("? [a, b]\n: 1\n", "found unhashable key"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, said):
    path = tmp_path / "server.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        load_config(path)


def test_settings_can_share_parts_and_repeat_names_at_different_places(tmp_path):
    path = tmp_path / "server.yaml"
    path.write_text("policy: p\npolicy_options: {policy: &x {a: 1}, other: {<<: *x, b: 2}}\n")
    assert load_config(path).policy_options["other"] == {"a": 1, "b": 2}
