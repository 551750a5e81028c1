"""Files that a run leaves are data: none runs code, and a bad one is refused in one line."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from copy import copy as copy_of
from pathlib import Path
from typing import Any

import pytest
import torch

from genelab.cli.main import run
from genelab.config import to_dict
from genelab.config.registry import TASKS
from genelab.envs import rl_cfg
from genelab.errors import UsageError
from genelab.rl import train_task
from genelab.rl.config import Sb3AgentCfg, Sb3OnPolicyCfg
from genelab.rl.policies import load_policy
from tests.rl.helpers import play_env, train_agent

TASK = "GeneLab-Inverted-Pendulum-v0"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two iterations."""
    path = tmp_path_factory.mktemp("runs") / "run"
    train_task(TASK, num_envs=4, max_iterations=2, seed=1, log_dir=path)
    return path


@pytest.fixture
def home(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run, `./run`, to spoil."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, "run")
    return tmp_path / "run"


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The one line that a command is refused with."""

    def call(*words: str) -> str:
        capfd.readouterr()
        assert run(list(words)) == 2
        lines = capfd.readouterr().err.splitlines()
        assert len(lines) == 1, lines
        return lines[0]

    return call


def test_a_link_out_of_a_run_is_not_written_through(home: Path, refused: Callable[..., str]) -> None:
    precious = home.parent / "precious"
    precious.write_text("mine")
    final = home / "model_final.pt"
    final.rename(home / "kept.pt")
    final.symlink_to(precious)
    assert "run/model_final.pt is a link out of the run" in refused(*resume())
    final.unlink()
    final.symlink_to(home.parent / "new")  # to what is not there yet
    assert "run/model_final.pt is a link out of the run" in refused(*resume())
    assert precious.read_text() == "mine"
    final.unlink()
    final.symlink_to("kept.pt")
    assert run(resume()) == 0
    assert sorted(path.name for path in home.parent.iterdir()) == ["precious", "run"]


def resume(*more: str) -> list[str]:
    return ["train", TASK, "--resume", "run", "--max-iterations", "3", "--quiet", "--no-final-eval", *more]


def edit(file: Path, *path: str, value: Any) -> None:
    """Change one value of a JSON file."""
    data = json.loads(file.read_text())
    node = data
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    file.write_text(json.dumps(data))


SHELL = [
    ("os:system", {"command": "touch owned"}),
    ("subprocess:check_output", {"args": "touch owned", "shell": True}),
    ("genelab.rl.launch.process:Process", {"command": ["touch", "owned"], "env": {}}),
    ("genelab.config.files:atomic_write_text", {"path": "owned", "text": ""}),
    ("genelab.scene.incoming:Path.touch", {"self": "owned"}),
]


@pytest.mark.parametrize(("function", "arguments"), SHELL)
def test_the_config_of_a_run_does_not_run_code_on_resume(
    function: str, arguments: dict[str, Any], home: Path, refused: Callable[..., str]
) -> None:
    robot = ("scene", "entities", "robot")
    edit(home / "params/env.json", *robot, "spec", value=function)
    edit(home / "params/env.json", *robot, "spec_args", value=arguments)
    assert f"genelab: run/params/env.json: scene.entities.robot.spec: '{function}' " in refused(*resume())
    assert not Path("owned").exists()


@pytest.mark.parametrize(("function", "arguments"), SHELL)
def test_a_dump_does_not_run_code_on_replay(
    function: str, arguments: dict[str, Any], home: Path, refused: Callable[..., str]
) -> None:
    env = to_dict(rl_cfg(TASK))
    env["scene"]["entities"]["robot"] |= {"spec": function, "spec_args": arguments}
    state = torch.load(home / "resume.pt", weights_only=True)["env"]
    dump = {"task": TASK, "env": json.dumps(env), "state": state, "actions": torch.zeros(1, 4, 1)}
    torch.save({**dump, "environment": 0, "message": "see"}, "nan_dump.pt")
    line = refused("play", TASK, "--replay", "nan_dump.pt")
    assert f"scene.entities.robot.spec: '{function}' " in line
    assert not Path("owned").exists()


@pytest.mark.parametrize("place", [("scene", "entities", "robot", "spec"), ("rewards", "alive", "func")])
def test_a_function_beside_a_task_is_not_called_with_what_a_file_says(
    place: tuple[str, ...], home: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("mylab.py").write_text("def wipe(path):\n    open(path, 'w')\n")
    monkeypatch.setattr(TASKS, "_packages", TASKS.packages | {"mylab"})  # as if it had brought the task
    monkeypatch.syspath_prepend(Path.cwd())
    edit(home / "params/env.json", *place, value="mylab:wipe")
    edit(home / "params/env.json", "scene", "entities", "robot", "spec_args", value={"path": "owned"})
    edit(home / "params/env.json", "rewards", "alive", "params", value={"path": "owned"})
    assert f"{'.'.join(place)}: 'mylab:wipe' does not say what it returns" in refused(*resume())
    assert not Path("owned").exists()


def test_a_name_in_a_file_is_not_even_imported(home: Path, refused: Callable[..., str]) -> None:
    Path("trap.py").write_text("open('owned', 'w')\n")
    edit(home / "params/env.json", "rewards", "alive", "func", value="trap:f")
    assert "'trap:f' may not be used here: trap brings no task" in refused(*resume())
    edit(home / "params/env.json", "rewards", "alive", "func", value="genelab.mdp.rewards:is_alive")
    edit(home / "params/env.json", "scene", "__type__", value="trap:Scene")
    assert "'trap:Scene' may not be used here: trap brings no task" in refused(*resume())
    assert not Path("owned").exists()


@pytest.mark.parametrize("function", ["os:abort", "os:system", "genelab.rl.run:versions"])
def test_the_command_line_follows_the_same_rule(function: str, home: Path, refused: Callable[..., str]) -> None:
    for place in ("env.scene.entities.robot.spec", "env.rewards.alive.func"):
        assert f"genelab: {place}: '{function}' may not be used here: " in refused(
            "info", TASK, f"--{place}={function}"
        )


def spoil(**changes: Any) -> Callable[[Path], None]:
    """Change parts of `resume.pt`; a dotted name is one part of a part, and None in a list takes it away."""

    def change(path: Path) -> None:
        content = torch.load(path, weights_only=True)
        for name, value in changes.items():
            *parents, key = name.split("__")
            node = content
            for parent in parents:
                node = node[parent]
            if value == []:
                del node[key]
            else:
                node[key] = value
        torch.save(content, path)

    return change


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda path: path.write_bytes(b""), "not a checkpoint, but empty"),
        (lambda path: path.write_bytes(path.read_bytes()[:3000]), "not a checkpoint, but damaged"),
        (lambda path: torch.save({}, path), "checkpoint is missing"),
        (lambda path: torch.save([1], path), "expected a dict, got [1]"),
        (spoil(learner=None), "learner: expected dict, got None"),
        (spoil(learner={}), "cannot go on from it: "),
        (spoil(learner={"alg": 5}), "cannot go on from it: "),
        (spoil(env=5), "env: expected dict, got 5"),
        (spoil(env={}), "cannot go on from it: "),
        (spoil(monitor=[]), "monitor: expected a dict, got None"),
        (spoil(monitor__done="x"), "monitor.done: expected int, got 'x'"),
        (spoil(monitor__episodes={}), "cannot go on from it: KeyError: 'returns'"),
        (spoil(torch_rng=torch.zeros(3)), "cannot go on from it: "),
        (spoil(torch_rng=None), "torch_rng: expected Tensor, got None"),
    ],
)
def test_a_resume_file_that_is_not_whole_is_refused(
    damage: Callable[[Path], None], says: str, home: Path, refused: Callable[..., str]
) -> None:
    before = json.loads((home / "run.json").read_text())
    damage(home / "resume.pt")
    line = refused(*resume())
    assert "run/resume.pt: " in line
    assert says in line
    assert json.loads((home / "run.json").read_text()) == before  # the run is as it was


class Evil:
    def __reduce__(self) -> Any:
        return open, ("owned", "w")


@pytest.mark.parametrize("name", ["resume.pt", "model_final.pt"])
def test_a_pickle_that_calls_is_refused(name: str, home: Path, refused: Callable[..., str]) -> None:
    torch.save({"learner": Evil()}, home / name)
    words = resume() if name == "resume.pt" else ["eval", TASK, f"run/{name}", "--episodes", "1"]
    assert f"run/{name}: not a checkpoint that can be read safely" in refused(*words)
    assert not Path("owned").exists()


def test_a_compressed_checkpoint_is_refused_unread(home: Path, refused: Callable[..., str]) -> None:
    with zipfile.ZipFile("bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb/data.pkl", b" " * 10_000_000)
    assert "not a checkpoint: torch compresses nothing" in refused("eval", TASK, "bomb.pt")


@pytest.mark.parametrize("name", ["resume.pt", "model_final.pt"])
def test_one_record_is_not_read_under_many_names(name: str, home: Path, refused: Callable[..., str]) -> None:
    torch.save({str(i): torch.full((25_000,), float(i)) for i in range(50)}, "honest.pt")
    overlap(Path("honest.pt"), home / name)
    assert len(torch.load(home / name, weights_only=True)) == 50, "torch reads it, at fifty times its size"
    words = resume() if name == "resume.pt" else ["eval", TASK, f"run/{name}", "--episodes", "1"]
    assert refused(*words) == f"genelab: run/{name}: damaged: several of its records are at one place"


def overlap(honest: Path, bomb: Path) -> None:
    """Copy a checkpoint, but with one record for all tensors."""
    with zipfile.ZipFile(honest) as archive, zipfile.ZipFile(bomb, "w") as copy:
        first: zipfile.ZipInfo | None = None
        for member in archive.infolist():
            if "/data/" not in member.filename:
                copy.writestr(member.filename, archive.read(member))
            elif first is None:
                copy.writestr(member.filename, archive.read(member))
                first = copy.getinfo(member.filename)
            else:
                again = copy_of(first)
                again.filename = member.filename
                copy.filelist.append(again)
                copy.NameToInfo[member.filename] = again


def test_of_a_huge_file_only_the_first_bytes_are_read(home: Path, refused: Callable[..., str]) -> None:
    with open("huge.pt", "wb") as file:
        file.truncate(200 * 2**30)  # a hole: it takes no place on the disk, and no memory has room for it
    assert "huge.pt: not a checkpoint, but damaged, or of another kind" in refused("eval", TASK, "huge.pt")


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("task",), 5, "task: expected str, got 5"),
        (("overrides",), 5, "overrides: expected list[str] | None, got 5"),
        (("ranks",), "x", "ranks: expected int | None, got 'x'"),
        (("status",), None, "status: expected str, got None"),
        (("started_at",), 5, "started_at: expected str, got 5"),
        (("backend",), [], "backend: expected str, got []"),
        (("wall_seconds",), "x", "wall_seconds: expected float | None, got 'x'"),
        (("versions",), [1], "versions: expected dict[str, str | None] | None, got [1]"),
        (("hardware", "gpus"), 5.5, "hardware: expected "),
        (("git",), "x", "git: expected "),
    ],
)
def test_a_run_record_of_wrong_types_is_refused(
    path: tuple[str, ...], value: Any, says: str, home: Path, refused: Callable[..., str]
) -> None:
    edit(home / "run.json", *path, value=value)
    for words in (resume(), ["report", "run"]):
        line = refused(*words)
        assert "run/run.json: " in line
        assert says in line


@pytest.mark.parametrize("text", ["{}", "[]", "5", "", "{", "[" * 100_000, '{"task": "\\ud800"}', '{"seed": 1e999}'])
def test_a_run_record_that_is_none_is_refused(text: str, home: Path, refused: Callable[..., str]) -> None:
    (home / "run.json").write_text(text)
    for words in (resume(), ["report", "run"]):
        assert "genelab: run is not a run directory: run/run.json" in refused(*words)


@pytest.mark.parametrize("name", ["env", "agent"])
@pytest.mark.parametrize("text", ["[]", "5", "null", '"x"', "{}", "[" * 100_000, '{"a":' * 900 + "1" + "}" * 900])
def test_params_that_are_none_are_refused(text: str, name: str, home: Path, refused: Callable[..., str]) -> None:
    (home / f"params/{name}.json").write_text(text)
    assert f"run/params/{name}.json" in refused(*resume())


@pytest.mark.parametrize(
    ("file", "path", "value", "says"),
    [
        ("env", ("scene", "num_envs"), "x", "scene.num_envs: expected int, got 'x'"),
        ("env", ("simulation", "dt"), None, "simulation.dt: expected float, got None"),
        ("env", ("rewards",), [1], "rewards: expected "),
        ("env", ("rewards", "alive"), 5, "rewards: expected "),
        ("env", ("rewards", "alive", "params"), {"nothing": 1}, "has no parameter 'nothing'"),
        ("agent", ("actor",), None, "actor: expected RslRlModelCfg, got None"),
        ("agent", ("actor", "hidden_dims"), "x", "actor.hidden_dims: expected "),
        ("agent", ("save_interval",), 1.5, "save_interval: expected int, got 1.5"),
    ],
)
def test_params_of_wrong_types_are_refused_by_name(
    file: str, path: tuple[str, ...], value: Any, says: str, home: Path, refused: Callable[..., str]
) -> None:
    edit(home / f"params/{file}.json", *path, value=value)
    line = refused(*resume())
    assert says in line


def test_params_in_the_wrong_place_are_refused(home: Path, refused: Callable[..., str]) -> None:
    shutil.copy(home / "params/env.json", home / "params/agent.json")
    assert "params/agent.json: expected BackendConfig, got ManagerBasedRlEnvCfg" in refused(*resume())


@pytest.mark.parametrize(
    ("part", "value", "says"),
    [
        ("backend", [], "backend is missing"),
        ("task", 5, "task: expected str, got 5"),
        ("schema", 5, "schema: expected a dict, got 5"),
        ("schema__transforms", 7, "schema.transforms: expected "),
        ("schema__observations", {"policy": 5}, "schema.observations.policy: expected a dict, got 5"),
    ],
)
def test_a_checkpoint_without_all_its_parts_is_refused(
    part: str, value: Any, says: str, home: Path, refused: Callable[..., str]
) -> None:
    spoil(**{f"genelab__{part}": value})(home / "model_final.pt")
    assert f"run/model_final.pt: {says}" in refused("eval", TASK, "run")


@pytest.mark.parametrize("value", [[], "x", {}, None])
def test_a_checkpoint_without_its_weights_is_refused(value: Any, home: Path, refused: Callable[..., str]) -> None:
    spoil(actor_state_dict=value)(home / "model_final.pt")
    assert "run/model_final.pt: " in refused("eval", TASK, "run")
    assert "run/model_final.pt: " in refused(
        "train", TASK, "--checkpoint", "run", "--quiet", "--max-iterations", "1", "--log-dir", "new"
    )
    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"task": []}, "task is missing"),
        ({"task": None}, "task: expected str, got None"),
        ({"env": "["}, "a dump that cannot be played: env is not JSON"),
        ({"env": "[]"}, "expected ManagerBasedRlEnvCfg, got list"),
        ({"env": 5}, "env: expected str, got 5"),
        ({"state": None}, "state: expected dict, got None"),
        ({"state": {}}, "a dump that cannot be played: "),
        ({"actions": "x"}, "actions: expected Tensor, got 'x'"),
        ({"actions": torch.zeros(1, 9, 1)}, "its actions are not those of 4 environments"),
        ({"environment": 4}, "its actions are not those of 4 environments"),
        ({"environment": "x"}, "environment: expected int, got 'x'"),
        ({"message": 5}, "message: expected str, got 5"),
    ],
)
def test_a_dump_without_all_its_parts_is_refused(
    changes: dict[str, Any], says: str, home: Path, refused: Callable[..., str]
) -> None:
    env = json.loads((home / "params/env.json").read_text())
    state = torch.load(home / "resume.pt", weights_only=True)["env"]
    dump = {"task": TASK, "env": json.dumps(env), "state": state, "actions": torch.zeros(1, 4, 1)}
    dump |= {"environment": 0, "message": "see", **changes}
    torch.save({key: value for key, value in dump.items() if not isinstance(value, list)}, "nan_dump.pt")
    line = refused("play", TASK, "--replay", "nan_dump.pt")
    assert "genelab: nan_dump.pt: " in line
    assert says in line


def export(module: torch.nn.Module) -> None:
    """The exported policy of the run, with another module in its file."""
    assert run(["export", TASK, "run", "--out", "policy.ts"]) == 0
    torch.jit.save(torch.jit.script(module), "policy.ts")


class Raises(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no")


class OfTwo(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class AnswersText(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> str:
        return "x"


@pytest.mark.parametrize("module", [Raises(), OfTwo(), AnswersText(), torch.nn.Linear(99, 1), torch.nn.Identity()])
def test_an_exported_policy_that_fails_when_it_is_called_is_refused(
    module: torch.nn.Module, home: Path, refused: Callable[..., str]
) -> None:
    export(module)
    play = ["play", TASK, "--checkpoint", "policy.ts", "--agent", "trained", "--headless"]
    for words in (["eval", TASK, "policy.ts"], play):
        line = refused(*words, "--num-envs", "2")
        assert "genelab: policy.ts: not the policy that its metadata describe: " in line


def test_an_exported_policy_that_writes_is_refused(home: Path, refused: Callable[..., str]) -> None:
    class Writes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.save(x, "owned")
            return x

    export(Writes())
    assert "policy.ts: a damaged torchscript file: it does more than compute" in refused("eval", TASK, "policy.ts")
    assert not Path("owned").exists()


BROKEN = """
import mujoco
from genelab import TASKS

def spec() -> mujoco.MjSpec:
    return mujoco.MjSpec.from_string("<mujoco><worldbody><body/></nothing></mujoco>")

def none() -> mujoco.MjSpec:
    return 5

def make(function):
    cfg = TASKS.get("GeneLab-Inverted-Pendulum-v0")
    for env in (cfg.env, cfg.play_env):
        env.scene.entities["robot"].spec, env.scene.entities["robot"].spec_args = function, {}
    return cfg

TASKS.register("Broken-Xml-v0", lambda: make(spec))
TASKS.register("Broken-Type-v0", lambda: make(none))
"""


def test_a_model_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(TASKS, "_entries", dict(TASKS._entries))
    monkeypatch.syspath_prepend(tmp_path)
    Path("broken_models.py").write_text(BROKEN)
    line = refused("play", "Broken-Xml-v0", "--import", "broken_models.py")
    assert "the model of 'robot' is not a valid model: XML " in line
    line = refused("play", "Broken-Type-v0", "--import", "broken_models.py")
    assert "the model of 'robot' is a int, not a mujoco.MjSpec" in line


@pytest.mark.parametrize(
    "text",
    [
        '{"engines": 5}',
        '{"engines": {"a": 5}}',
        '{"metrics": {}, "checkpoint": "x", "num_episodes": 1}',
        '{"metrics": {"return_mean": "x"}, "checkpoint": "", "num_episodes": 1, "evaluated_at": "", "engine": ""}',
        "[" * 100_000,
        "5",
    ],
)
def test_a_report_takes_no_notice_of_other_files(text: str, home: Path) -> None:
    (home / "mine.json").write_text(text)
    assert run(["report", "run", "--out", "report.html"]) == 0
    assert " episodes on " not in Path("report.md").read_text()  # nothing was taken for an evaluation


def test_the_table_of_a_report_shows_what_a_run_says_as_it_is(home: Path) -> None:
    nasty = "<script>alert(1)</script>|`x`\n| a [b](http://c)"
    edit(home / "run.json", "task", value=nasty)
    assert run(["report", "run", "--out", "report.html"]) == 0
    table = Path("report.md").read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\|\\`x\\` \\| a [b]\\(http://c)" in table
    assert len(table.splitlines()) == 3
    assert "<script>" not in Path("report.html").read_text()


@pytest.mark.parametrize("text", ["[" * 100_000, '[{"task": "\\ud800", "checkpoint": "x"}]'])
def test_a_suite_that_cannot_be_read_is_refused(text: str, home: Path, refused: Callable[..., str]) -> None:
    Path("suite.json").write_text(text)
    assert "--suite: suite.json is not JSON" in refused("benchmark", "--suite", "suite.json", "--out", "out.json")


def test_a_reference_of_too_many_digits_is_refused(home: Path, refused: Callable[..., str]) -> None:
    Path("suite.json").write_text(json.dumps([{"task": TASK, "checkpoint": "pretrained"}]))
    row = {"task": TASK, "checkpoint": "pretrained", "seed": 0, "evaluation": {"metrics": {"return_mean": 7}}}
    Path("reference.json").write_text(json.dumps({"rows": [row]}).replace("7", "7" * 401))
    line = refused("benchmark", "--suite", "suite.json", "--reference", "reference.json", "--out", "out.json")
    assert "--reference: reference.json is not JSON: 77777777777777777777 is no number" in line


def test_sb3_metadata_of_wrong_types_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    agent = Sb3AgentCfg(algorithm="PPO", timesteps=16, on_policy=Sb3OnPolicyCfg(n_steps=4, batch_size=8))
    result = train_agent(agent, "run")
    with zipfile.ZipFile(result.checkpoint) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    places = [("schema",), ("agent",), ("normalizer",), ("goals",), ("backend",), ("task",), ("schema", "actions")]
    places += [("agent", name) for name in ("algorithm", "hidden_dims", "activation")]
    for place in places:
        meta = json.loads(parts["genelab.json"])
        node = meta if len(place) == 1 else meta[place[0]]
        node[place[-1]] = 5
        with zipfile.ZipFile("spoiled.zip", "w") as archive:
            for name, data in {**parts, "genelab.json": json.dumps(meta).encode()}.items():
                archive.writestr(name, data)
        with pytest.raises(UsageError, match=r"^spoiled\.zip: "):
            load_policy(play_env(), agent, Path("spoiled.zip"))
    with zipfile.ZipFile("spoiled.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("genelab.json", b" " * 20_000_000)  # of which the first part is read
    with pytest.raises(UsageError, match=r"^spoiled\.zip: genelab\.json is not JSON"):
        load_policy(play_env(), agent, Path("spoiled.zip"))
    overlap_weights(parts, Path("spoiled.zip"))
    with pytest.raises(
        UsageError, match=r"^spoiled\.zip: policy\.pth: damaged: several of its records are at one place"
    ):
        load_policy(play_env(), agent, Path("spoiled.zip"))


def overlap_weights(parts: dict[str, bytes], path: Path) -> None:
    """Write an archive of SB3 in which all tensors of the policy are one record."""
    Path("honest.pth").write_bytes(parts["policy.pth"])
    overlap(Path("honest.pth"), Path("bomb.pth"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**parts, "policy.pth": Path("bomb.pth").read_bytes()}.items():
            archive.writestr(name, data)
