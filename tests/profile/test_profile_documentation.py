"""The profile document as it is documented: the JSON Schema, and docs/profiles.md."""

import json
import re
from pathlib import Path

import jsonschema

from trmodel.profile import build_system, load_profile, profile_names, profile_schema
from trmodel.profile.load import BUILTIN
from trmodel.routing import Routing

DOCS = Path(__file__).parents[2] / "docs" / "profiles.md"


def code_blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)


def test_builtin_files_and_the_example_fit_the_published_json_schema():
    validator = jsonschema.Draft202012Validator(profile_schema())
    validator.check_schema(profile_schema())
    for name in profile_names():
        validator.validate(json.loads((BUILTIN / f"{name}.json").read_text()))
    example = json.loads(code_blocks("json")[0])
    validator.validate(example)
    assert not validator.is_valid({**example, "prize": 1})
    example["models"][0]["decode"]["latency_ms"][0] = -1
    assert not validator.is_valid(example)


def test_every_field_of_the_schema_is_described():
    schema = profile_schema()
    documentation = DOCS.read_text(encoding="utf-8")
    for each in (schema, *schema["$defs"].values()):
        assert each["description"]
        for name, field in each["properties"].items():
            assert field.get("description"), name
            assert re.search(rf"[`.]{name}`", documentation), name


def test_the_examples_of_the_documentation_load(tmp_path, monkeypatch):
    profile_text, routing_text = code_blocks("json")
    path = tmp_path / "my-server.json"
    path.write_text(profile_text)
    profile = load_profile(path).profile
    assert profile.model_names == ["Qwen3-0.6B", "Qwen3-32B"]
    Routing.model_validate_json(routing_text).bind(profile.model_names)
    namespace: dict = {}
    monkeypatch.chdir(tmp_path)
    for block in code_blocks("python"):
        exec(block, namespace)
    assert namespace["system"].N == 8
    assert namespace["room"].binding_gpu == 0
    assert namespace["check"].fits
    assert build_system(load_profile(path), 16).warnings == ()
