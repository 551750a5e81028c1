"""The scripted demonstrator and its file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from genelab.errors import UsageError
from genelab.rl.demos import Demos, load_demos
from genelab_franka.collect_demos import main
from genelab_franka.pick_place import compute_reward

GROUPS = {"observation": 35, "achieved_goal": 3, "desired_goal": 3}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten seconds of sixteen environments."""
    path = tmp_path_factory.mktemp("demos") / "demos.npz"
    assert main(["--num-envs", "16", "--steps", "200", "--out", str(path), "--seed", "3"]) == 0
    assert [other.name for other in path.parent.iterdir()] == ["demos.npz"]  # no temporary file is left
    return path


@pytest.fixture(scope="module")
def demos(file: Path) -> Demos:
    return load_demos(file, 16, GROUPS, 4, 1.0)


def test_nearly_every_episode_ends_at_its_goal(demos: Demos) -> None:
    ends = demos.dones.nonzero()
    assert sorted(set(ends[0])) == [99, 199]
    distance = np.linalg.norm(
        demos.next_observations["achieved_goal"] - demos.next_observations["desired_goal"], axis=2
    )[ends]
    assert len(distance) == 32
    assert (distance < 0.05).mean() >= 0.95
    assert np.median(distance) < 0.02
    lifted = demos.observations["achieved_goal"][:, :, 2].reshape(2, 100, 16).max(axis=1)
    assert lifted.min() > 0.04  # it is carried, not pushed


def test_the_file_has_the_published_keys_and_shapes(file: Path) -> None:
    with np.load(file, allow_pickle=False) as arrays:
        shapes = {key: arrays[key].shape for key in arrays.files}
    wanted: dict[str, tuple[int, ...]] = {
        f"{when}_{name}": (200, 16, width) for name, width in GROUPS.items() for when in ("obs", "next_obs")
    }
    wanted |= {"actions": (200, 16, 4), "rewards": (200, 16), "dones": (200, 16), "truncateds": (200, 16)}
    assert shapes == wanted


def test_rewards_are_those_of_the_places_and_time_outs_are_no_terminals(demos: Demos) -> None:
    achieved, desired = (demos.next_observations[name] for name in ("achieved_goal", "desired_goal"))
    paid = compute_reward(achieved.reshape(-1, 3), desired.reshape(-1, 3), [])
    np.testing.assert_allclose(demos.rewards.ravel(), paid, atol=1e-6)
    assert np.array_equal(demos.dones, demos.truncateds)
    assert np.abs(demos.actions).max() <= 1.0


def test_last_observations_are_of_before_the_reset(demos: Demos) -> None:
    for name in GROUPS:
        same = (demos.observations[name][1:] == demos.next_observations[name][:-1]).all(axis=2)
        assert np.array_equal(same, ~demos.dones[:-1])
    np.testing.assert_allclose(demos.next_observations["observation"][99, :, 34], 0.0, atol=1e-6)
    np.testing.assert_allclose(demos.observations["observation"][100, :, 34], 1.0)


def test_the_same_seed_gives_the_same_file(file: Path, tmp_path: Path) -> None:
    arguments = ["--num-envs", "16", "--steps", "20", "--out", str(tmp_path / "again.npz"), "--seed"]
    for seed, same in (("3", True), ("4", False)):
        assert main([*arguments, seed]) == 0
        with np.load(file) as first, np.load(tmp_path / "again.npz") as second:
            assert np.array_equal(first["obs_observation"][:20], second["obs_observation"]) is same


def test_another_number_of_environments_is_explained(file: Path) -> None:
    with pytest.raises(UsageError, match="have 16 environments, training runs 64: pass `num_envs=16`"):
        load_demos(file, 64, GROUPS, 4, 1.0)


def test_episodes_may_be_shorter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "short.npz"
    assert main(["--num-envs", "2", "--steps", "20", "--episode-length-s", "0.5", "--out", str(path)]) == 0
    assert "success: 0.0% of 4 episodes" in capsys.readouterr().out
    with np.load(path) as arrays:
        assert np.flatnonzero(arrays["dones"][:, 0]).tolist() == [9, 19]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--num-envs", "0"], "--num-envs: must be at least 1, got 0"),
        (["--steps", "0"], "--steps: must be at least 1, got 0"),
        (["--episode-length-s", "-1"], "env.episode_length_s: must be positive, got -1.0"),
        (["--out", "."], "--out: . is a directory; give a file"),
    ],
)
def test_bad_input_is_named(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--num-envs", "2", "--steps", "1", "--out", "demos.npz", *arguments]) == 2
    assert capsys.readouterr().err == f"collect_demos: {message}\n"
    assert not list(tmp_path.iterdir())


def test_it_is_a_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "genelab_franka.collect_demos"]
    options = ["--num-envs", "2", "--steps", "3", "--out", str(tmp_path / "demos.npz")]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path}/demos.npz: 3 steps of 2 environments; success: no episode ended\n"
