"""Carts with poles on them: the first tasks to try. Source of the published settings: docs/sources.md."""

from genelab.config import TASKS

TASKS.register(
    "GeneLab-Inverted-Pendulum-v0",
    "genelab_pendulum.inverted_pendulum:task",
    description="Balance one pole on a cart.",
    robot="cart and pole",
    backend="rsl_rl PPO",
    published="genelab_pendulum.inverted_pendulum:published_task",
)
TASKS.register(
    "GeneLab-Inverted-Pendulum-Skrl-v0",
    "genelab_pendulum.inverted_pendulum:skrl_task",
    description="Balance one pole on a cart; trained with skrl.",
    robot="cart and pole",
    backend="skrl PPO",
    published="genelab_pendulum.inverted_pendulum:published_skrl_task",
)
TASKS.register(
    "GeneLab-Double-Inverted-Pendulum-v0",
    "genelab_pendulum.double_pendulum:task",
    description="Balance two poles, one on top of the other.",
    robot="cart and two poles",
    backend="rsl_rl PPO",
    published="genelab_pendulum.double_pendulum:published_task",
)
TASKS.register(
    "GeneLab-Inverted-Pendulum-Memory-Rnn-v0",
    "genelab_pendulum.memory:rnn_task",
    description="Go to a place shown only for the first five steps; with an LSTM.",
    robot="cart and pole",
    backend="rsl_rl PPO",
)
TASKS.register(
    "GeneLab-Inverted-Pendulum-Memory-Mlp-v0",
    "genelab_pendulum.memory:mlp_task",
    description="Go to a place shown only for the first five steps; without memory, to compare with the LSTM.",
    robot="cart and pole",
    backend="rsl_rl PPO",
)
