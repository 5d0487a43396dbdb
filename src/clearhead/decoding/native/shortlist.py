"""A shortlist for the compiled core: a product for the tokens that all sentences may use, and one for those of each.

Products with a sentence's own tokens are in float32, whatever the precision of the others: they are few.
"""

from __future__ import annotations

import torch

from clearhead.decoding.native.weights import NativeWeights
from clearhead.decoding.rules import never_written
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.shortlist import Shortlist
from clearhead.kernels.panels import make_product
from clearhead.kernels.structs import STRUCTS, Struct

__all__ = ["ListedProducts"]


class ListedProducts:
    """The products of a shortlist.

    Args:
        weights: Of the model.
        shortlist: Learned with it.

    Raises:
        ModelError: If the shortlist does not fit the model.
    """

    def __init__(self, weights: NativeWeights, shortlist: Shortlist) -> None:
        config, output = weights.model.config, weights.model.output_proj
        shortlist.check(config)
        self.shortlist = shortlist
        self._weight, self._bias = output.weight.detach(), output.bias
        # What is never written keeps its share of the probability.
        always = torch.tensor([config.eos_id, *never_written(config)])
        self.common = torch.cat([shortlist.common, always]).unique().int()
        self.decoder = STRUCTS["Stack"].from_buffer_copy(weights.decoder)
        self.decoder.keep("layers", weights)
        self.decoder.output = make_product(self._weight, self._bias, weights.precision, rows=self.common)

    def enter(self, slot: Struct, sentence: Sentence) -> None:
        """Give a sentence the product with its own tokens."""
        own = self.shortlist.tokens_for(sentence).int()
        own = own[~torch.isin(own, self.common)]
        slot.own = make_product(self._weight, self._bias, "fp32", rows=own)
        slot.point(own_ids=own)
        slot.num_own = len(own)
