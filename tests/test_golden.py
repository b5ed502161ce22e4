"""The generated text, to the letter: it is what users read, debug and commit.

``S2S_UPDATE_GOLDEN=1`` rewrites the files of ``golden/``; read the difference before committing it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cases
import s2s
from s2s.functions import layer_norm, linear, swish

GOLDEN = Path(__file__).parent / "golden"
Function = Callable[..., Any]


def corpus(name: str) -> Function:
    return cases.functions(name)[0]


TEXTS: dict[str, tuple[Function, str]] = {
    "layer_norm.eager": (layer_norm, "eager"),
    "layer_norm.torchscript": (layer_norm, "torchscript"),
    "layer_norm.func": (layer_norm, "func"),
    "layer_norm.op": (layer_norm, "op"),
    "linear.eager": (linear, "eager"),
    "swish.eager": (swish, "eager"),
    "attention.eager": (corpus("attention"), "eager"),
    "spelled_out.eager": (corpus("spelled_out"), "eager"),
    "modes_of_relu.eager": (corpus("modes_of_relu"), "eager"),
    "spike_factory.eager": (corpus("spike_factory"), "eager"),
    "spike_factory.torchscript": (corpus("spike_factory"), "torchscript"),
    "nested_helpers.eager": (corpus("nested_helpers"), "eager"),
    "concat.eager": (corpus("concat"), "eager"),
    "embedding.torchscript": (corpus("embedding"), "torchscript"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_is_the_golden_one(name: str) -> None:
    text = s2s.source(*TEXTS[name])
    path = GOLDEN / f"{name}.py"
    if os.environ.get("S2S_UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.py")} == set(TEXTS)


LAYER_NORM = """\
import torch


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps=1e-5):
        # Ba et al. 2016, over the last dimension.
        centred = x - x.mean(-1, keepdim=True)
        rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
        x_hat = centred * rstd
        ctx.save_for_backward(
            x,
            weight if ctx.needs_input_grad[0] else None,
            rstd if ctx.needs_input_grad[0] else None,
            x_hat if ctx.needs_input_grad[0] or ctx.needs_input_grad[1] else None,
        )
        ctx.eps = eps
        return x_hat * weight + bias

    @staticmethod
    def backward(ctx, grad_out):
        x, weight, rstd, x_hat = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative: make these functions of the inputs again
            centred = x - x.mean(-1, keepdim=True)
            rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + ctx.eps)
            x_hat = centred * rstd
        # weight and bias are shared by every row, so their gradients sum over rows
        rows = list(range(x.dim() - 1))
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            g = grad_out * weight
            grad_x = rstd * (g - g.mean(-1, keepdim=True) - x_hat * (g * x_hat).mean(-1, keepdim=True))
        if ctx.needs_input_grad[1]:
            grad_weight = (grad_out * x_hat).sum(rows)
        if ctx.needs_input_grad[2]:
            grad_bias = grad_out.sum(rows)
        return grad_x, grad_weight, grad_bias, None
"""


def test_layer_norm_reads_as_an_expert_would_write_it() -> None:
    # written by hand before there was a compiler; it may not move with the golden files
    assert s2s.source(layer_norm, "eager") == LAYER_NORM
