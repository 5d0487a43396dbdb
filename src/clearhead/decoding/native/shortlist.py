"""Shortlist products for the compiled core: one for the common tokens, and one per sentence for its own.

The products with a sentence's own tokens are always in float32, because they are small.
"""

from __future__ import annotations

import numpy as np

from clearhead.decoding.native.weights import NativeWeights
from clearhead.decoding.rules import never_written
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.shortlist import Shortlist
from clearhead.kernels.panels import make_product
from clearhead.kernels.structs import STRUCTS, Struct


class ListedProducts:
    """The packed products of a shortlist.

    Args:
        weights: Packed weights of the model.
        shortlist: A shortlist learned with the same model.

    Raises:
        ModelError: If the shortlist does not fit the model.
    """

    def __init__(self, weights: NativeWeights, shortlist: Shortlist) -> None:
        config, model = weights.model.config, weights.model
        shortlist.check(config)
        self.shortlist = shortlist
        self._weight, self._bias = model["output_proj.weight"], model.get("output_proj.bias")
        # Tokens that are never written keep their share of the probability.
        always = np.array([config.eos_id, *never_written(config)], dtype=np.int32)
        self.common = np.union1d(shortlist.common, always)
        self.decoder = STRUCTS["Stack"].from_buffer_copy(weights.decoder)
        self.decoder.keep("layers", weights)
        self.decoder.output = make_product(self._weight, self._bias, weights.precision, rows=self.common)

    def tokens(self, tokens: Struct) -> Struct:
        """Return a structure for embedding tokens that allows the common tokens alone."""
        listed = STRUCTS["Tokens"].from_buffer_copy(tokens)
        listed.num_ids = len(self.common)
        listed.keep("embedding", tokens)
        return listed.point(ids=self.common)

    def enter(self, slot: Struct, sentence: Sentence) -> None:
        """Create the product with the sentence's own tokens, in its slot."""
        own = np.setdiff1d(self.shortlist.tokens_for(sentence), self.common, assume_unique=True)
        slot.own = make_product(self._weight, self._bias, "fp32", rows=own)
        slot.point(own_ids=own)
        slot.num_own = len(own)
