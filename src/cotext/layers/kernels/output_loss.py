"""Output layer and label-smoothed cross-entropy, in chunks that never contain all logits.

Logits in half precision are normalised, and their gradients summed, in single precision. Float16 has no
numbers below 6e-8, where most probabilities are, nor above 65,504. Therefore, before rounding, probabilities
are multiplied by a large factor, and the other operand of their product is scaled down. All other gradients
are scaled by the loss scale, which is not known yet when these gradients are computed.

Shapes: N labels in all or in a chunk, D model, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from cotext.layers.kernels.common import precise_dtype

# Number of logits that are normalised at a time on a CPU, so that they stay in its cache.
BLOCK_NUMBERS = 2**19
SYMBOLS = 2**12  # rows of the weight gradient that are updated at once on a CPU
RAISED = 2.0**10  # factor of probabilities in float16
LARGEST = 2.0**15  # largest sum of products in float16


class OutputProducts:
    """Probabilities of the output layer, computed in place of its logits, and the products of its gradients.

    The chunks of logits must not be larger than the first chunk, `logits_NV`.
    """

    def __init__(self, logits_NV: Tensor) -> None:
        self.precise = precise_dtype(logits_NV)
        self.raised = RAISED if logits_NV.dtype == torch.float16 else 1.0
        count, symbols = logits_NV.shape
        # The rows of the weight gradient that are summed at once stay in the cache, too.
        self.symbols = SYMBOLS if logits_NV.device.type == "cpu" else symbols
        self.rows = max(1, BLOCK_NUMBERS // symbols) if logits_NV.device.type == "cpu" else max(1, count)
        # Reused for all chunks: allocating memory of this size costs as much as several passes over it.
        self._block = logits_NV.new_empty(min(self.rows, count), symbols, dtype=self.precise)

    def normalise(self, logits_NV: Tensor, label_N: Tensor | None = None, less: float = 0.0) -> Tensor:
        """Turn logits into raised probabilities in place, and return the log-sum-exp of each row: [N].

        `less` is subtracted from the probability of each label before rounding.
        """
        first_N = logits_NV[:, 0].to(self.precise)
        log_sums_N = torch.empty_like(first_N)
        for start in range(0, len(logits_NV), self.rows):
            rows = slice(start, start + self.rows)
            logits = logits_NV[rows]
            p = self._block[: len(logits)].copy_(logits)
            torch.log_softmax(p, dim=1, out=p)
            # A log-probability is a logit minus the log-sum, so one column gives the log-sum.
            log_sums_N[rows] = first_N[rows] - p[:, 0]
            p.exp_()
            if label_N is not None:
                p.scatter_add_(1, label_N[rows, None], p.new_full((), -less).expand(len(p), 1))
            logits.copy_(p if self.raised == 1 else p.mul_(self.raised))
        return log_sums_N

    def of_hidden(self, raised_NV: Tensor, matrix_VD: Tensor) -> Tensor:
        """Return the probabilities, no longer raised, times a matrix: [N, D]."""
        return (raised_NV @ matrix_VD).to(self.precise).div_(self.raised)

    def add_of_weight(self, total_VD: Tensor, raised_NV: Tensor, other_ND: Tensor) -> None:
        """Add the transposed probabilities times a factor for each label, `other_ND`, to `total_VD`."""
        if raised_NV.dtype == self.precise:
            total_VD.addmm_(raised_NV.T, other_ND)
        elif raised_NV.dtype == torch.float16:
            # Values are scaled so that the sums of products fit into float16; single precision undoes this.
            bound = other_ND.abs().max().clamp(min=torch.finfo(self.precise).tiny) * len(other_ND)
            lowered = other_ND / bound * (LARGEST / self.raised)
            product = (raised_NV.T @ lowered.to(raised_NV.dtype)).to(self.precise)
            total_VD.addcmul_(product, bound / LARGEST)
        else:
            other_ND = other_ND.to(raised_NV.dtype)
            for start in range(0, len(total_VD), self.symbols):
                rows = slice(start, start + self.symbols)
                total_VD[rows] += raised_NV[:, rows].T @ other_ND


class _OutputLoss(Function):
    """Output layer and smoothed cross-entropy in one; the gradient is computed in the forward pass.

    The logits of each chunk of labels exist once and become their own gradient in place. The peak memory is
    therefore chunk x V instead of three times N x V. Gradients stay in single precision until the scale of
    the loss is known.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        label_N: Tensor,
        discount_N: Tensor,
        smoothing: float,
        chunk: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the discounted loss, summed, and for each label its nll and its smoothed loss: [N]."""
        wants = any(ctx.needs_input_grad[:3])
        precise = precise_dtype(hidden_ND)
        grad_hidden = torch.empty_like(hidden_ND, dtype=precise) if wants else None
        grad_weight = torch.zeros_like(weight_VD, dtype=precise) if wants else None
        grad_bias = torch.zeros_like(bias_V, dtype=precise) if wants and bias_V is not None else None
        discount_N = discount_N.to(precise)
        matrix_VD = weight_VD.to(hidden_ND.dtype)
        bias = None if bias_V is None else bias_V.to(hidden_ND.dtype)
        # The mean of the logits over the vocabulary is the logit of the mean row and the mean bias.
        mean_D = weight_VD.mean(dim=0, dtype=precise)
        count = label_N.numel()
        nll, uniform = (torch.empty(count, device=hidden_ND.device, dtype=precise) for _ in range(2))
        # Reused for all chunks, see `OutputProducts`.
        buffer = hidden_ND.new_empty(min(chunk, count), weight_VD.size(0))
        products = OutputProducts(buffer)
        for start in range(0, count, chunk):
            rows = slice(start, start + chunk)
            hidden, label, discount = hidden_ND[rows], label_N[rows], discount_N[rows, None]
            logits = buffer[: len(label)]
            if bias is None:
                torch.mm(hidden, matrix_VD.T, out=logits)
            else:
                torch.addmm(bias, hidden, matrix_VD.T, out=logits)
            # Read before `normalise` overwrites the logits.
            label_logit = logits.gather(1, label[:, None])[:, 0].to(precise)
            hidden = hidden.to(precise)
            # The part of the gradient that is the same for all V, -smoothing / V, is added separately. For
            # the hidden state it is a multiple of the mean row, for the weight one vector for all rows.
            log_sum = products.normalise(logits, label, 1 - smoothing)
            nll[rows], uniform[rows] = log_sum - label_logit, log_sum - hidden @ mean_D
            if grad_hidden is None or grad_weight is None:
                continue
            if grad_bias is not None:
                products.add_of_weight(grad_bias[:, None], logits, discount)
            grad_hidden[rows] = (products.of_hidden(logits, matrix_VD) - smoothing * mean_D) * discount
            products.add_of_weight(grad_weight, logits, hidden * discount)
        if grad_weight is not None:
            grad_weight -= discount_N @ hidden_ND.to(precise) * (smoothing / weight_VD.size(0))
        if grad_bias is not None:
            grad_bias -= discount_N.sum() * (smoothing / weight_VD.size(0))
        uniform = uniform if bias is None else uniform - bias.mean(dtype=precise)
        smoothed = (1 - smoothing) * nll + smoothing * uniform
        total = (discount_N * smoothed).sum()
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        ctx.dtypes = hidden_ND.dtype, weight_VD.dtype, None if bias_V is None else bias_V.dtype
        ctx.mark_non_differentiable(nll, smoothed)
        return total, nll, smoothed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias = (
            None if grad is None else (grad * grads[0]).to(dtype)
            for grad, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        )
        return hidden, weight, bias, None, None, None, None


def in_autocast_dtype(hidden_ND: Tensor) -> Tensor:
    """Convert hidden states to the precision of autocast, where it is enabled."""
    kind = hidden_ND.device.type
    return hidden_ND.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else hidden_ND


def output_loss(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    label_N: Tensor,
    discount_N: Tensor,
    smoothing: float,
    chunk: int = 1024,
    bias_V: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss summed over labels weighted by `discount_N`, and two unweighted losses of each label.

    With smoothing s a label y costs (1 - s) * -log p(y) + s * mean over V of -log p (Szegedy et al. 2016).

    Returns:
        the loss, differentiable; the negative log-likelihood of each label [N]; its smoothed loss [N].
    """
    hidden_ND = in_autocast_dtype(hidden_ND)
    # The function chooses the precision of each of its products itself.
    with torch.autocast(hidden_ND.device.type, enabled=False):
        outcome: tuple[Tensor, Tensor, Tensor] = _OutputLoss.apply(  # type: ignore[no-untyped-call]
            hidden_ND, weight_VD, bias_V, label_N, discount_N, smoothing, chunk
        )
    return outcome
