"""The selective state-space scan, for all directions at once, in plain PyTorch.

    h_t = exp(Δ_t A) ⊙ h_{t-1} + (Δ_t u_t) B_tᵀ,    y_t = C_t h_t,    h_0 = 0

The state is laid out [G·B, N, D] (long axis contiguous). Steps are taken in chunks that fit in the cache: the
decays of all steps of a chunk at once, then the states step by step in place, then all outputs. Closed forms
with cumulative exponentials overflow; this does not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK_NUMBERS = 1 << 18  # numbers of state in a chunk (1 MiB); for a large batch a chunk is one step


@torch.compiler.disable
def selective_scan(u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return y [L, G, B, D] for u, delta [L, G, B, D]; a [G, D, N]; b, c [L, G, B, N]."""
    a = a.transpose(1, 2).unsqueeze(1).contiguous()  # [G, 1, N, D]
    return SelectiveScan.apply(u, delta, b, c, a)


class SelectiveScan(torch.autograd.Function):
    """The recurrence with a hand-written adjoint: autograd would keep a node per step and slice."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, u: Tensor, delta: Tensor, b: Tensor, c: Tensor, a: Tensor
    ) -> Tensor:
        length, groups, batch, dim = u.shape
        shape = (groups * batch, a.shape[2], dim)
        drive, b_col, c_row = _as_matrices(delta * u, b, c)
        y = u.new_empty(length, shape[0], 1, dim)
        chunk = max(1, CHUNK_NUMBERS // (shape[0] * shape[1] * dim))
        keep_states = any(ctx.needs_input_grad)
        states = u.new_empty(length if keep_states else min(chunk, length), *shape)
        h = u.new_zeros(shape)
        steps = length if type(u) is Tensor else min(length, 2 * chunk)  # two chunks tell the bytes of all
        for t in range(0, steps, chunk):
            now = slice(t, min(t + chunk, length))
            at = states[now] if keep_states else states[: now.stop - t]
            torch.mul(delta[now].unsqueeze(3), a, out=at.view(-1, groups, batch, *shape[1:])).exp_()
            _advance_(at, h, drive[now], b_col[now])
            torch.bmm(c_row[now].flatten(0, 1), at.flatten(0, 1), out=y[now].flatten(0, 1))
            h.copy_(at[-1])
        if keep_states:
            ctx.save_for_backward(u, delta, b, c, a, states)
        return y.view(length, groups, batch, dim)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        u, delta, b, c, a, states = ctx.saved_tensors
        length, groups, batch, dim = u.shape
        shape = states.shape[1:]
        drive, b_col, c_row = _as_matrices(delta * u, b, c)
        grad = grad.reshape(length, shape[0], 1, dim)
        grad_h = u.new_zeros(shape)
        grad_drive, grad_delta = torch.empty_like(drive), torch.empty_like(delta)
        grad_b = u.new_empty(length, shape[0], 1, shape[1])
        grad_a, decay = torch.zeros_like(a), u.new_empty(groups, batch, *shape[1:])
        for t in reversed(range(length if type(u) is Tensor else 2)):  # as above
            grad_h.addcmul_(c_row[t].transpose(1, 2), grad[t])
            torch.bmm(b_col[t].transpose(1, 2), grad_h, out=grad_drive[t])
            torch.bmm(drive[t], grad_h.transpose(1, 2), out=grad_b[t])
            torch.mul(delta[t].unsqueeze(2), a, out=decay).exp_()
            grad_h.mul_(decay.view(shape))
            if t == 0:  # h_{-1} = 0: the first decay has no influence
                grad_delta[0].zero_()
                break
            exponent = (grad_h * states[t - 1]).view(groups, batch, *shape[1:])
            grad_a += (exponent * delta[t].unsqueeze(2)).sum(1, keepdim=True)
            torch.sum(exponent.mul_(a), 2, out=grad_delta[t])
        grad_drive = grad_drive.view_as(u)
        grad_c = torch.matmul(grad, states.transpose(2, 3)).view_as(c)
        return grad_drive * delta, grad_delta + grad_drive * u, grad_b.view_as(b), grad_c, grad_a


def _advance_(x: Tensor, h: Tensor, drive: Tensor, b_col: Tensor) -> None:
    """Turn decays [steps, G·B, N, D] into states, step by step, starting from h."""
    for t in range(len(x)):
        h = x[t].mul_(h).addcmul_(drive[t], b_col[t])


def _as_matrices(drive: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Per step and sequence: drive as 1×D, B as N×1, C as 1×N, ready for `bmm`."""
    length, groups, batch, dim = drive.shape
    rows = (length, groups * batch)
    b, c = b.contiguous(), c.contiguous()
    return drive.contiguous().view(*rows, 1, dim), b.view(*rows, -1, 1), c.view(*rows, 1, -1)
