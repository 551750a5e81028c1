"""Who looks on at a step: in which order, and what is told."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from genelab.envs import ManagerBasedRlEnv, StepResult, Watcher, rl_cfg

TASK = "GeneLab-Inverted-Pendulum-v0"


class Scribe(Watcher):
    """Writes down what it hears."""

    def __init__(self, name: str, book: list[str]) -> None:
        self.name, self.book = name, book

    def before_step(self, action: Tensor) -> None:
        self.book.append(f"{self.name} acts {action.tolist()}")

    def before_physics(self) -> None:
        self.book.append(f"{self.name} in")

    def after_physics(self) -> None:
        self.book.append(f"{self.name} out")

    def after_step(self, step: StepResult) -> None:
        self.book.append(f"{self.name} done {step.done.tolist()}")


@pytest.fixture
def env() -> ManagerBasedRlEnv:
    cfg = rl_cfg(TASK, play=True)
    cfg.scene.num_envs = 2
    env = ManagerBasedRlEnv(cfg)
    env.reset(seed=0)
    return env


def test_watchers_nest(env: ManagerBasedRlEnv) -> None:
    book: list[str] = []
    env.watchers.append(Scribe("inner", book))
    with env.watched_by(Scribe("outer", book)):
        env.step(torch.zeros(2, 1))
    assert book == [
        "outer acts [[0.0], [0.0]]",
        "inner acts [[0.0], [0.0]]",
        "outer in",
        "inner in",
        "inner out",
        "outer out",
        "inner done [False, False]",
        "outer done [False, False]",
    ]
    book.clear()
    env.step(torch.zeros(2, 1))
    assert [line.split()[0] for line in book] == ["inner"] * 4
    env.close()


def test_a_step_answers_five_values_with_names(env: ManagerBasedRlEnv) -> None:
    answer = env.step(torch.zeros(2, 1))
    observations, reward, terminated, truncated, info = answer
    assert answer.observations is observations
    assert answer.info is info
    assert torch.equal(answer.done, terminated | truncated)
    assert reward.shape == (2,)
    env.close()


def test_what_watches_is_no_part_of_the_state(env: ManagerBasedRlEnv) -> None:
    state = env.state_dict()
    env.watchers.append(Scribe("one", []))
    assert env.state_dict().keys() == state.keys()
    env.close()
