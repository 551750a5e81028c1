"""Checkpoints that do not fit are refused by name, and no code in them is run."""

from __future__ import annotations

import pickle
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from genelab.cli.eval import command as evaluate
from genelab.cli.flags import in_flags
from genelab.config import apply_overrides, split_overrides
from genelab.envs import ManagerBasedRlEnv, rl_cfg
from genelab.errors import UsageError
from genelab.rl.checkpoint import columns_in, load_checkpoint, save_atomically, schema_of, widen
from genelab.rl.transforms import _both


@pytest.fixture(scope="module")
def env() -> ManagerBasedRlEnv:
    return ManagerBasedRlEnv(rl_cfg("GeneLab-Inverted-Pendulum-v0", play=True))


def write(path: Path, env: ManagerBasedRlEnv, **changes: Any) -> Path:
    meta = {"backend": "rsl_rl", "task": "Some-Task-v0", "schema": schema_of(env), **changes}
    save_atomically({"weights": torch.ones(2), "genelab": meta}, path)
    return path


def refusal(path: Path, env: ManagerBasedRlEnv) -> str:
    with pytest.raises(UsageError) as caught:
        load_checkpoint(path, "rsl_rl", env)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


def test_a_fitting_one_is_read(tmp_path: Path, env: ManagerBasedRlEnv) -> None:
    content = load_checkpoint(write(tmp_path / "model.pt", env), "rsl_rl", env)
    assert content["weights"].tolist() == [1, 1]
    assert list(tmp_path.iterdir()) == [tmp_path / "model.pt"]


def test_what_is_not_there_or_not_a_file(tmp_path: Path, env: ManagerBasedRlEnv) -> None:
    assert refusal(tmp_path / "model.pt", env) == "no such checkpoint"
    assert refusal(tmp_path, env) == "a directory, not a checkpoint file"


def test_an_html_page(tmp_path: Path, env: ManagerBasedRlEnv) -> None:
    page = tmp_path / "model.pt"
    page.write_text("<!DOCTYPE html><html>404</html>")
    assert refusal(page, env) == "not a checkpoint, but an HTML page"


def test_a_truncated_file(tmp_path: Path, env: ManagerBasedRlEnv) -> None:
    path = write(tmp_path / "model.pt", env)
    path.write_bytes(path.read_bytes()[:-100])
    assert "damaged" in refusal(path, env)


def test_foreign_weights(tmp_path: Path, env: ManagerBasedRlEnv) -> None:
    torch.save({"model_state_dict": {}}, tmp_path / "model.pt")
    assert refusal(tmp_path / "model.pt", env) == "not a checkpoint of GeneLab"


def test_another_library(tmp_path: Path, env: ManagerBasedRlEnv) -> None:
    path = write(tmp_path / "model.pt", env, backend="skrl")
    assert refusal(path, env) == "made with skrl, but this task's agent is of rsl_rl"


def test_other_observations_are_named(tmp_path: Path, env: ManagerBasedRlEnv) -> None:
    schema = schema_of(env)
    schema["observations"]["policy"]["terms"]["pole_ang_vel"] = 4
    path = write(tmp_path / "model.pt", env, schema=schema)
    assert refusal(path, env) == (
        "trained on Some-Task-v0 with other observations: policy.terms.pole_ang_vel is 4 there, 3 here"
    )
    del schema["observations"]["policy"]["terms"]["pole_ang_vel"]
    path = write(tmp_path / "model.pt", env, schema=schema)
    assert "policy.terms.pole_ang_vel is missing there, 3 here" in refusal(path, env)


def test_to_learn_on_there_may_be_more_to_see_but_nothing_may_be_missing(
    tmp_path: Path, env: ManagerBasedRlEnv
) -> None:
    schema = schema_of(env)
    del schema["observations"]["policy"]["terms"]["pole_ang_vel"]
    load_checkpoint(write(tmp_path / "model.pt", env, schema=schema), "rsl_rl", env, may_grow=True)
    schema["observations"]["policy"]["terms"]["smell"] = 2
    path = write(tmp_path / "model.pt", env, schema=schema)
    with pytest.raises(UsageError, match=r"policy\.terms\.smell is 2 there, missing here"):
        load_checkpoint(path, "rsl_rl", env, may_grow=True)


def test_columns_are_found_by_the_names_of_their_terms_in_every_frame() -> None:
    here = {"history": 2, "terms": {"new": 1, "a": 2, "newer": 2, "b": 1}}
    assert columns_in(here, {"history": 2, "terms": {"a": 2, "b": 1}}) == [1, 2, 5, 7, 8, 11]
    assert columns_in(here, here) == list(range(12))


def test_a_wider_network_gives_the_same_whatever_the_new_inputs_are() -> None:
    narrow, wide = (torch.nn.Sequential(torch.nn.Linear(n, 3), torch.nn.Linear(3, 3)) for n in (3, 5))
    wide.load_state_dict(widen(narrow.state_dict(), wide.state_dict(), [1, 2, 4]))
    inputs = torch.randn(6, 5)
    assert torch.allclose(wide(inputs), narrow(inputs[:, [1, 2, 4]]))


def test_a_wider_normaliser_begins_afresh_where_it_is_new() -> None:
    saved, fresh = {"mean": torch.tensor([[3.0, 4.0]])}, {"mean": torch.tensor([[0.5, 0.5, 0.5]])}
    assert widen(saved, fresh, [2, 0])["mean"].tolist() == [[4.0, 0.5, 3.0]]


def test_other_actions_are_named(tmp_path: Path, env: ManagerBasedRlEnv) -> None:
    path = write(tmp_path / "model.pt", env, schema={**schema_of(env), "actions": {"cart": 2}})
    assert "other actions: cart is 2 there, 1 here" in refusal(path, env)


def test_another_order_is_refused_though_all_widths_are_the_same(tmp_path: Path, env: ManagerBasedRlEnv) -> None:
    schema = schema_of(env)
    terms = schema["observations"]["policy"]["terms"]
    schema["observations"]["policy"]["terms"] = dict(reversed(terms.items()))
    path = write(tmp_path / "model.pt", env, schema=schema)
    there, here = ", ".join(reversed(terms)), ", ".join(terms)
    assert refusal(path, env) == (
        f"trained on Some-Task-v0 with other observations: policy.terms in another order: {there} there, {here} here"
    )


def test_the_order_of_groups_does_not_matter(tmp_path: Path, env: ManagerBasedRlEnv) -> None:
    schema = schema_of(env)
    schema["observations"] = dict(reversed(schema["observations"].items()))
    load_checkpoint(write(tmp_path / "model.pt", env, schema=schema), "rsl_rl", env)


@pytest.mark.parametrize(
    ("path", "there", "message"),
    [
        ("env.actions.cart.scale", 5.0, "scale 5, here 1: pass `env.actions.cart.scale=5`"),
        ("env.actions.cart.scale", {"cart": 2.0}, 'scale 2, here 1 for cart: pass `env.actions.cart.scale={"'),
        ("env.actions.cart.clip", [None, 1.0], "clip [-inf, 1], here none: pass `env.actions.cart.clip=[-inf, 1]`"),
        ("env.actions.cart.offset", 0.5, "here 0: make env.actions.cart.offset and the robot's default pose add up to"),
        ("env.observations.policy.terms.joint_vel.scale", 0.2, "scale 0.2, here 0.1: pass `env.observations.policy."),
        ("env.observations.policy.terms.joint_vel.scale", [0.1, 0.2], "scale [0.1, 0.2], here 0.1: pass `env."),
        ("env.observations.policy.terms.joint_pos.clip", [-1.0, 1.0], "clip [-1, 1], here none: pass `env."),
    ],
)
def test_numbers_that_mean_something_else_are_named(
    path: str, there: Any, message: str, tmp_path: Path, env: ManagerBasedRlEnv
) -> None:
    schema = schema_of(env)
    assert path in schema["transforms"]
    schema["transforms"][path] = there
    text = refusal(write(tmp_path / "model.pt", env, schema=schema), env)
    assert text.startswith(f"trained with {path} ")
    assert message in text


def test_values_per_joint_are_named_by_the_joint() -> None:
    assert _both({"hip": 1.0, "knee": 2.0, "ankle": 3.0}, 1.0) == "2, here 1 for knee and others for 1 more"
    assert _both({"hip": 1.0, "knee": 2.0}, {"hip": 1.0, "wrist": 2.0}) == "2, here none for knee and others for 1 more"


def test_what_it_says_to_pass_makes_it_fit(tmp_path: Path, env: ManagerBasedRlEnv) -> None:
    schema = schema_of(env)
    changes = {"env.actions.cart.clip": [None, 1.0], "env.actions.cart.scale": {"cart": 2.0}}
    changes |= {"env.observations.policy.terms.joint_vel.scale": [0.1, 0.2]}
    schema["transforms"] |= changes
    path = write(tmp_path / "model.pt", env, schema=schema)
    cfg = rl_cfg("GeneLab-Inverted-Pendulum-v0", play=True)
    for _ in changes:
        message = in_flags(refusal(path, ManagerBasedRlEnv(cfg)), evaluate)
        [word] = shlex.split(message.partition(": pass ")[2])
        apply_overrides({"env": cfg}, split_overrides([word])[0])
    load_checkpoint(path, "rsl_rl", ManagerBasedRlEnv(cfg))


def test_noise_of_32_bits_and_old_checkpoints_pass(tmp_path: Path, env: ManagerBasedRlEnv) -> None:
    schema = schema_of(env)
    schema["transforms"]["env.observations.policy.terms.joint_vel.scale"] = 0.1000001
    schema["transforms"]["env.actions.cart.scale"] = {"cart": 1.0}
    load_checkpoint(write(tmp_path / "model.pt", env, schema=schema), "rsl_rl", env)
    del schema["transforms"]
    load_checkpoint(write(tmp_path / "model.pt", env, schema=schema), "rsl_rl", env)


class Payload:
    """What a malicious file would hold."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (_touch, ("executed",))


def _touch(name: str) -> None:
    Path(name).touch()


def test_a_pickle_payload_is_not_executed(
    tmp_path: Path, env: ManagerBasedRlEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"genelab": Payload()}, tmp_path / "model.pt", pickle_module=pickle)
    assert "cannot" in refusal(tmp_path / "model.pt", env) or "safely" in refusal(tmp_path / "model.pt", env)
    assert not (tmp_path / "executed").exists()
