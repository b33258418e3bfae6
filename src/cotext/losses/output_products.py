"""Probabilities of the output layer in place of its logits, and the products of its gradients.

Logits of half precision are normalised, and their gradients summed, in single precision. Float16 has no
numbers below 6e-8, as most probabilities are, nor above 65,504: there probabilities are raised, and what they
are multiplied with is lowered, before either is rounded. The scale of the loss does so for all other
gradients, and is not known yet where these are made.

Shapes: N labels of a chunk, D model, V vocabulary.
"""

import torch
from torch import Tensor

from cotext.layers.kernels.precision import precise_dtype

BLOCK_NUMBERS = 2**19  # that are normalised at once on a CPU, so that they stay in its cache
SYMBOLS = 2**12
RAISED = 2.0**10  # factor of probabilities in float16
LARGEST = 2.0**15  # that a sum of products may become in float16


class OutputProducts:
    """For chunks of logits that are no larger than the first."""

    def __init__(self, logits_NV: Tensor) -> None:
        self.precise = precise_dtype(logits_NV)
        self.raised = RAISED if logits_NV.dtype == torch.float16 else 1.0
        count, symbols = logits_NV.shape
        # Of the matrix whose gradient is added at once: what is added up stays in the cache, too.
        self.symbols = SYMBOLS if logits_NV.device.type == "cpu" else symbols
        self.rows = max(1, BLOCK_NUMBERS // symbols) if logits_NV.device.type == "cpu" else max(1, count)
        # Kept for all chunks: fresh memory of this size costs as much as several passes over it.
        self._block = logits_NV.new_empty(min(self.rows, count), symbols, dtype=self.precise)

    def normalise(self, logits_NV: Tensor, label_N: Tensor | None = None, less: float = 0.0) -> Tensor:
        """Log-sums of the exponentials of logits, [N], which become raised probabilities.

        Those of labels are less by `less`, which is subtracted before anything is rounded.
        """
        first_N = logits_NV[:, 0].to(self.precise)
        log_sums_N = torch.empty_like(first_N)
        for start in range(0, len(logits_NV), self.rows):
            here = slice(start, start + self.rows)
            logits = logits_NV[here]
            p = self._block[: len(logits)].copy_(logits)
            torch.log_softmax(p, dim=1, out=p)
            log_sums_N[here] = first_N[here] - p[:, 0]
            p.exp_()
            if label_N is not None:
                p.scatter_add_(1, label_N[here, None], p.new_full((), -less).expand(len(p), 1))
            logits.copy_(p if self.raised == 1 else p.mul_(self.raised))
        return log_sums_N

    def of_hidden(self, raised_NV: Tensor, matrix_VD: Tensor) -> Tensor:
        """Probabilities times a matrix, with nothing raised any more: [N, D]."""
        return (raised_NV @ matrix_VD).to(self.precise).div_(self.raised)

    def add_of_weight(self, total_VD: Tensor, raised_NV: Tensor, other_ND: Tensor) -> None:
        """Add the transposed probabilities times what each label is multiplied with."""
        if raised_NV.dtype == self.precise:
            total_VD.addmm_(raised_NV.T, other_ND)
        elif raised_NV.dtype == torch.float16:
            bound = other_ND.abs().max().clamp(min=torch.finfo(self.precise).tiny) * len(other_ND)
            lowered = other_ND * (LARGEST / self.raised / bound)
            product = (raised_NV.T @ lowered.to(raised_NV.dtype)).to(self.precise)
            total_VD.addcmul_(product, bound / LARGEST)
        else:
            other_ND = other_ND.to(raised_NV.dtype)
            for start in range(0, len(total_VD), self.symbols):
                here = slice(start, start + self.symbols)
                total_VD[here] += raised_NV[:, here].T @ other_ND
