"""The length penalty: how hypotheses of different lengths are compared."""

from cotext.config.decoding import LengthPenaltyForm


def length_divisor(length: int, exponent: float, form: LengthPenaltyForm) -> float:
    """Return the number by which the log-probability of a hypothesis of `length` tokens is divided.

    `power` is `length ** exponent`, as in fairseq, Marian, CTranslate2 and transformers. `gnmt` is
    `((5 + length) / 6) ** exponent` (Wu et al. 2016, equation 14), as in Vaswani et al. 2017 and in
    src/decoding/beam_search.py of Blickwinkel1107/making-the-most-of-context-nmt (82f684f).

    With an exponent of 0 or more, both grow with the length, which the pruning of beam search relies on.
    """
    base = length if form == "power" else (5 + length) / 6
    divisor: float = base**exponent
    return divisor
