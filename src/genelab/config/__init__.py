"""Config tools: dotted overrides, JSON and the task registry."""

from genelab.config.bounds import Amount, Count, Finite, Limit, NonNegative, Positive, Seed, Share, Widths, check_values
from genelab.config.files import (
    atomic_write_bytes,
    atomic_write_files,
    atomic_write_text,
    check_out,
    parse_json,
    read_json,
    writable_target,
    write_json_out,
    write_out,
)
from genelab.config.memory import check_memory
from genelab.config.overrides import (
    FieldInfo,
    apply_override,
    apply_overrides,
    as_words,
    iter_fields,
    reaches,
    refuse_decided,
    split_overrides,
)
from genelab.config.registry import PUBLISHED, TASKS, PluginFailure, TaskCfg, TaskEntry, TaskRegistry
from genelab.config.serialize import dump_json, from_dict, load_json, to_dict
from genelab.config.shape import expect

__all__ = [
    "PUBLISHED",
    "TASKS",
    "Amount",
    "Count",
    "FieldInfo",
    "Finite",
    "Limit",
    "NonNegative",
    "PluginFailure",
    "Positive",
    "Seed",
    "Share",
    "TaskCfg",
    "TaskEntry",
    "TaskRegistry",
    "Widths",
    "apply_override",
    "apply_overrides",
    "as_words",
    "atomic_write_bytes",
    "atomic_write_files",
    "atomic_write_text",
    "check_memory",
    "check_out",
    "check_values",
    "dump_json",
    "expect",
    "from_dict",
    "iter_fields",
    "load_json",
    "parse_json",
    "reaches",
    "read_json",
    "refuse_decided",
    "split_overrides",
    "to_dict",
    "writable_target",
    "write_json_out",
    "write_out",
]
