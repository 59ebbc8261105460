"""docs/policies.md names every policy and every option, and its examples are valid settings."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from trmodel.runtime.config import load_config
from trmodel.runtime.policies.find import BUILT_IN

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "policies.md").read_text()
OF_ROUTING = {"transition_probability", "committed_tokens"}


def class_of(name):
    module, _, attribute = BUILT_IN[name].partition(":")
    return getattr(import_module(f"trmodel.runtime.policies.{module}"), attribute)


def section_of(name):
    (found,) = re.findall(
        rf"^## [^\n]*`{name}`[^\n]*\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL
    )
    return found


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_option_of_every_policy_is_documented(name):
    options = set(inspect.signature(class_of(name)).parameters) - OF_ROUTING
    section = section_of(name)
    for option in options:
        assert f"`{option}`" in section
    shown = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert set(shown) <= options


@pytest.mark.parametrize("number", range(TEXT.count("```yaml")))
def test_the_examples_are_valid_settings_with_options_that_there_are(number, tmp_path):
    block = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)[number]
    (tmp_path / "server.yaml").write_text(block)
    config = load_config(tmp_path / "server.yaml")
    assert f"## `{config.policy}`" in TEXT
    inspect.signature(class_of(config.policy)).bind_partial(**config.policy_options)
    assert config.routing in (None, class_of(config.policy).default_routing)


def test_the_table_shows_what_each_policy_reads():
    words = {"logits": "logits", "hidden": "hidden state", "embedding": "embedding"}
    for name in BUILT_IN:
        if name == "recording":
            continue
        (reads,) = re.findall(rf"^\| \[`{name}`\]\(#[\w-]+\) \| (.*?) \|", TEXT, re.MULTILINE)
        needs = class_of(name).needs
        expected = ", ".join(word for need, word in words.items() if need in needs) or "nothing"
        assert reads == expected
