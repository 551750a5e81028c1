"""Managers: each runs the terms of one part of the MDP."""

from genelab.managers.actions import ActionManager, ActionTerm, ActionTermCfg
from genelab.managers.base import ROBOT, Manager, SceneEntityCfg, Selection, Table, TermCfg
from genelab.managers.commands import CommandManager, CommandTerm, CommandTermCfg, Range
from genelab.managers.curriculum import CurriculumManager, CurriculumTermCfg
from genelab.managers.events import EventManager, EventTermCfg
from genelab.managers.meaning import XYZ, Meaning, observation
from genelab.managers.metrics import MetricsManager, MetricTermCfg
from genelab.managers.noise import GaussianNoiseCfg, NoiseCfg, UniformNoiseCfg, symmetric
from genelab.managers.observations import ObservationGroupCfg, ObservationManager, ObservationTermCfg
from genelab.managers.probe import BlockScore, Probe
from genelab.managers.rewards import RewardManager, RewardTermCfg
from genelab.managers.rows import adapt, event, gate, metric, obs, part, reward, termination, truncation
from genelab.managers.schedules import GateCfg, ScheduleCfg, ScheduleManager
from genelab.managers.terminations import TerminationManager, TerminationTermCfg

__all__ = [
    "ROBOT",
    "XYZ",
    "ActionManager",
    "ActionTerm",
    "ActionTermCfg",
    "BlockScore",
    "CommandManager",
    "CommandTerm",
    "CommandTermCfg",
    "CurriculumManager",
    "CurriculumTermCfg",
    "EventManager",
    "EventTermCfg",
    "GateCfg",
    "GaussianNoiseCfg",
    "Manager",
    "Meaning",
    "MetricTermCfg",
    "MetricsManager",
    "NoiseCfg",
    "ObservationGroupCfg",
    "ObservationManager",
    "ObservationTermCfg",
    "Probe",
    "Range",
    "RewardManager",
    "RewardTermCfg",
    "SceneEntityCfg",
    "ScheduleCfg",
    "ScheduleManager",
    "Selection",
    "Table",
    "TermCfg",
    "TerminationManager",
    "TerminationTermCfg",
    "UniformNoiseCfg",
    "adapt",
    "event",
    "gate",
    "metric",
    "obs",
    "observation",
    "part",
    "reward",
    "symmetric",
    "termination",
    "truncation",
]
