"""Bundles are plain data that can be read alone."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from genelab.bench.schema import (
    BUNDLES,
    CProfileFunction,
    Learning,
    MeanStd,
    PlayBundle,
    RuntimeBundle,
    StartupBundle,
    StartupConfig,
    StartupPhase,
    TrainingBundle,
    workflow_of,
)
from genelab.bench.serialize import json_schema, read_bundle, schema_files, to_dict, write_bundle
from genelab.errors import UsageError
from tests.bench.stubs import CURVE, runtime_bundle

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def of_each_kind() -> dict[str, Any]:
    runtime = runtime_bundle()
    facts = {name: getattr(runtime, name) for name in ("run", "versions", "hardware")}
    speed = {name: getattr(runtime, name) for name in ("runtime", "resources")}
    function = CProfileFunction(name="a:b", own_time_s=0.1, cum_time_s=0.2, calls=3)
    phase = StartupPhase(total_time_s=1.0, top_functions=(function,))
    config = StartupConfig(top_n=5, whitelist={"first_step": ("a:*",)})
    return {
        "runtime": runtime,
        "startup": StartupBundle(**facts, phases={"first_step": phase}, config=config),
        "training": TrainingBundle(**facts, **speed, learning=Learning(ema_alpha=0.1, reward=CURVE)),
        "play": PlayBundle(**facts, **speed, success_rate=0.5, reward=MeanStd(mean=1.0, std=0.5, peak=2.0)),
    }


def test_importing_the_types_and_reading_a_bundle_imports_no_torch(tmp_path: Path) -> None:
    write_bundle(runtime_bundle(), tmp_path / "a.json")
    code = (
        "import sys; from pathlib import Path; import genelab.bench.schema; from genelab.bench import RuntimeBundle, "
        "read_bundle, compare_bundles, BenchmarkMonitor; read_bundle(Path(sys.argv[1])); "
        "print([name for name in ('torch', 'mujoco', 'genesis', 'numpy') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code, tmp_path / "a.json"], capture_output=True, text=True)
    assert result.stdout == "[]\n", result.stderr


def test_a_path_may_be_a_string(tmp_path: Path) -> None:
    write_bundle(runtime_bundle(), str(tmp_path / "a.json"))
    assert read_bundle(str(tmp_path / "a.json")) == runtime_bundle()


def test_types_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        runtime_bundle().runtime.iterations_completed = 3  # type: ignore[misc]


@pytest.mark.parametrize("workflow", list(BUNDLES))
def test_a_bundle_survives_its_file_and_answers_to_its_schema(workflow: str, tmp_path: Path) -> None:
    bundle = of_each_kind()[workflow]
    path = tmp_path / "made" / "bundle.json"
    write_bundle(bundle, path)
    assert read_bundle(path) == bundle
    assert workflow_of(bundle) == workflow
    text = path.read_text()
    assert text.startswith('{\n  "run": {\n    "run_id"')
    assert text.endswith("}\n")
    jsonschema.validate(json.loads(text), json_schema(BUNDLES[workflow]))
    assert [file.name for file in path.parent.iterdir()] == ["bundle.json"]


def test_the_schemas_in_the_docs_are_those_of_the_types() -> None:
    assert {path.name: path.read_text() for path in SCHEMAS.iterdir()} == schema_files(), (
        "python -m genelab.bench.serialize docs/schemas"
    )


def test_the_schema_tells_meanings_and_refuses_what_is_not_in_it() -> None:
    schema = json_schema(RuntimeBundle)
    assert schema["$defs"]["Hardware"]["properties"]["cpu_count"] == {
        "type": ["integer", "null"],
        "description": "Physical cores.",
    }
    content = to_dict(runtime_bundle())
    for broken in ({**content, "more": 1}, {key: value for key, value in content.items() if key != "run"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema)


def test_what_is_no_number_is_null_and_never_nan(tmp_path: Path) -> None:
    bundle = dataclasses.replace(runtime_bundle(), extra={"a": math.nan, "b": math.inf, "c": 0.0})
    write_bundle(bundle, tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text())["extra"] == {"a": None, "b": None, "c": 0.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"run": {"seed": "seven"}}, "not a RuntimeBundle: .run.seed: 'seven'"),
        ({"run": {"status": "fine"}}, ".run.status: 'fine'"),
        ({"run": {"num_envs": None}}, ".run.num_envs: None"),
        ({"runtime": {"iterations_completed": 1.5}}, ".runtime.iterations_completed: 1.5"),
        ({"hardware": {"more": 1}}, ".hardware: has hostname"),
        ({"extra": {"list": [1]}}, ".extra.list: [1]"),
        ({"phases": {}}, "is not a bundle of genelab benchmark runtime|startup|training|play"),
    ],
)
def test_a_file_that_is_no_bundle_is_refused_by_what_is_wrong(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    content = to_dict(runtime_bundle())
    for part, values in change.items():
        content[part] = {**content.get(part, {}), **values}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError, match=re.escape(message)):
        read_bundle(path)


def test_a_file_from_before_a_field_is_read_with_its_default(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for workflow, (part, name, default) in {
        "runtime": ("versions", "numpy", None),
        "training": ("resources", "ram_gb", None),
        "play": ("run", "max_iterations", None),
        "startup": ("config", "whitelist", None),
    }.items():
        content = to_dict(of_each_kind()[workflow])
        del content[part][name], content["extra"]
        path.write_text(json.dumps(content))
        bundle = read_bundle(path)
        assert workflow_of(bundle) == workflow
        assert (getattr(getattr(bundle, part), name), bundle.extra) == (default, {})
    content = to_dict(runtime_bundle())
    del content["run"]["seed"]
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError, match=re.escape("a.json is not a RuntimeBundle: .run: has run_id")):
        read_bundle(path)


def test_another_version_of_the_schema_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**to_dict(runtime_bundle()), "schema_version": 2}))
    with pytest.raises(UsageError, match=re.escape("a.json has schema_version 2; this genelab reads 1")):
        read_bundle(path)


@pytest.mark.parametrize(("text", "message"), [("{", "is not JSON"), ('{"a": NaN}', "NaN is no number"), ("[]", "no")])
def test_a_file_that_is_no_json_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_bundle(tmp_path / "a.json")
    with pytest.raises(UsageError, match="cannot read"):
        read_bundle(tmp_path / "b.json")
