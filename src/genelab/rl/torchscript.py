"""TorchScript files as data: a program that only computes.

TorchScript can write files and overwrite others, when it is called and already while it is loaded. So the source in
the archive is looked through before it is loaded, and the loaded graphs before anything in them is called: only
operators of a fixed list, which make tensors from tensors, are run. What is loaded is a new archive of the parts that
were looked at, since torch may see other parts in the same bytes: an archive can have two lists of them.
"""

from __future__ import annotations

import io
import re
import warnings
import zipfile
from collections.abc import Iterator
from typing import Any

import torch

from genelab.config.archive import MAX_RECORDS
from genelab.errors import UsageError

MAX_SOURCE = 2**22
"""Bytes of source that are read at most; a policy's own are some kB."""

_TENSOR = re.compile(r"[^/]+/(data|constants)/\d+")
_LINES = ".debug_pkl"
"""How the parts end that say where each line of source came from; nothing needs them."""
_SPECIAL = re.compile(r"__(?:[gs]etstate|forward_hooks|forward_pre_hooks)__")
"""What runs while a module is loaded, or beside its methods."""

_ATEN = """
    Bool Float FloatImplicit Int IntImplicit ScalarImplicit __and__ __contains__ __getitem__ __is__ __isnot__ __not__
    __or__ abs add add_ addmm all any append arange argmax atan2 atleast_1d avg_pool2d baddbmm batch_norm bmm
    broadcast_tensors cat ceil celu chunk clamp clamp_ clamp_max clamp_min clone concat contiguous conv1d conv2d copy_
    cos cumsum detach dict dim div div_ dot dropout einsum elu elu_ eq erf exp expand expand_as expm1 feature_dropout
    fill_ flatten flip floor floor_divide floordiv full full_like gather ge gelu getitem glu group_norm gru gru_cell
    gt hardsigmoid hardswish hardtanh hardtanh_ index index_select isfinite isnan keys layer_norm le leaky_relu
    leaky_relu_ len lift_fresh linear log log1p log_softmax logical_and logical_not logical_or logsumexp lstm
    lstm_cell lt masked_fill matmul max max_pool2d maximum mean min minimum mish mm mul mul_ narrow ne neg norm numel
    one_hot ones ones_like outer permute pow prelu reciprocal relu relu6 relu_ remainder repeat reshape rms_norm
    rnn_relu rnn_tanh rnn_tanh_cell round rsqrt rsub scalar_tensor scaled_dot_product_attention select selu sigmoid
    sign silu sin size slice softmax softplus softsign split split_with_sizes sqrt square squeeze stack std std_mean
    sub sub_ sum t tan tanh tanh_ tensor tensor_split threshold tile to transpose tril triu type_as unbind unflatten
    unsqueeze upsample_nearest2d values var var_mean view view_as where zero_ zeros zeros_like
"""
_PRIM = """
    Constant DictConstruct DictIndex GetAttr If ImplicitTensorToNum ListConstruct ListUnpack NumToTensor RaiseException
    SetAttr TupleConstruct TupleIndex TupleSlice TupleUnpack Uninitialized data device dtype isinstance max min
    unchecked_cast unchecked_unwrap_optional
"""
OPERATORS = frozenset([*(f"aten::{name}" for name in _ATEN.split()), *(f"prim::{name}" for name in _PRIM.split())])
"""What a policy may do: compute tensors. Nothing here reads, writes, prints, loops for ever or starts a thread."""


def load_torchscript(data: bytes, device: torch.device) -> Any:
    """The module in the content of a TorchScript file, if all it can do is compute; nothing of it has run."""
    data = _checked(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = torch.jit.load(io.BytesIO(data), map_location=device).eval()
    for operator in _operators(module):
        if operator not in OPERATORS:
            raise UsageError(f"it does more than compute: {operator} is not run")
    return module


def without_lines(data: bytes) -> bytes:
    """The archive without the parts that say which file of whose machine each line of source came from."""
    lean = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(lean, "w") as copy:
        for member in archive.infolist():
            if not member.filename.endswith(_LINES):
                copy.writestr(zipfile.ZipInfo(member.filename), archive.read(member))  # without the time of day
    return lean.getvalue()


def _checked(data: bytes) -> bytes:
    """The archive anew, without anything that would run while it is loaded: a module may say how its state is set."""
    checked = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(checked, "w") as copy:
        members = archive.infolist()
        names = [member.filename.casefold() for member in members]  # torch looks them up in any case
        if len(set(names)) < len(names):
            raise UsageError("two of its parts have one name")
        if len(members) > MAX_RECORDS:
            raise UsageError(f"it has more than {MAX_RECORDS} parts")
        source_left, tensors_left = MAX_SOURCE, len(data)
        for member in members:
            if member.filename.endswith(_LINES):
                continue
            is_tensor = _TENSOR.fullmatch(member.filename) is not None
            with archive.open(member) as file:
                content = file.read((tensors_left if is_tensor else source_left) + 1)
            if is_tensor:
                tensors_left -= len(content)
            else:
                source_left -= len(content)
                _check_source(content.decode(errors="replace"))
            if source_left < 0:
                raise UsageError(f"its source is larger than {MAX_SOURCE // 2**20} MB")
            if tensors_left < 0:
                raise UsageError("its tensors are larger than the file")  # torch does not compress them
            copy.writestr(member.filename, content)
    return checked.getvalue()


def _check_source(text: str) -> None:
    if special := _SPECIAL.search(text):
        raise UsageError(f"it does more than compute: it has {special[0]}")
    if "torch.classes" in text:
        raise UsageError("it does more than compute: it has objects of C++")


def _operators(module: Any) -> Iterator[str]:
    """The kind of every node in every method of a module and its parts, calls followed."""
    for part in module.modules():
        for name in part._c._method_names():
            yield from _of_block(part._c._get_method(name).inlined_graph)


def _of_block(block: Any) -> Iterator[str]:
    for node in block.nodes():
        yield node.kind()
        for inner in node.blocks():
            yield from _of_block(inner)
        for attribute in node.attributeNames():
            if node.kindOf(attribute) == "g":
                yield from _of_block(node.g(attribute))
