"""How a text becomes numbers (sections 3.2 and 3.4): WordPiece, ids, 512 numbers a piece, positions, attention.

Run it: python examples/text_to_numbers.py
"""

from __future__ import annotations

import math

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

import clearhead as ch
from clearhead.inspection.plots import HeatMap, HeatMaps
from clearhead.model.embeddings import Embedding
from clearhead.model.positions import SinusoidalPositions, sinusoidal_positions

TEXT = "the transformer reads all the words of sentences"
# Pieces that begin within a word are written with ##, as in BERT. A word that is not listed is cut into longest pieces.
PIECES = ["[UNK]", "##former", "##s", "all", "of", "reads", "sentence", "the", "trans", "words"]
D_MODEL = 512


def main() -> HeatMaps:
    """Follow the text step by step, with the shape and the first numbers of each."""
    word_piece = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    word_piece.pre_tokenizer = pre_tokenizers.Whitespace()
    encoded = word_piece.encode(TEXT)
    print("text      ", TEXT)
    print("WordPiece ", *encoded.tokens)
    print("ids       ", *encoded.ids)
    torch.manual_seed(0)
    positions = SinusoidalPositions(d_model=D_MODEL)
    layer = Embedding(vocab_size=len(PIECES), d_model=D_MODEL, dropout=0.0, positions=positions)
    torch.nn.init.normal_(layer.weight, std=D_MODEL**-0.5)
    vectors = layer.weight.detach()[encoded.ids]  # rows of the matrix: looked up, not computed
    scaled, pe = vectors * math.sqrt(D_MODEL), sinusoidal_positions(len(vectors), D_MODEL)
    x = scaled + pe
    products = x @ x.T
    scores = products / math.sqrt(D_MODEL)  # one head of full width: d_k = 512; the paper's eight divide by sqrt(64)
    weights = scores.softmax(dim=-1)  # each piece looks at itself: Q = K = x, nothing has learned W^Q and W^K
    steps = {"embedding": vectors, "x sqrt(512)": scaled, "PE": pe, "x = sum": x, "keys = x^T": x.T}
    steps |= {"Q K^T": products, "/ sqrt(512)": scores, "softmax": weights, "weights V": weights @ x}
    drawn = []
    for name, matrix in steps.items():
        rows, columns = matrix.shape
        first = " ".join(f"{value:8.2f}" for value in matrix[1, :4].tolist())
        print(f"{name:<12} {rows:>3} x {columns:<4} row 2: {first} ..  length {matrix[1].norm():8.2f}")
        y_names, x_names = (encoded.tokens if size == 10 else None for size in matrix.shape)
        drawn.append(HeatMap(f"{name}: {rows} x {columns}", matrix.tolist(), "", "", "", False, x_names, y_names))
    print("the two 'the' mix: weights", *(f"{weights[i, j]:.2f}" for i, j in ((0, 0), (0, 5), (5, 0), (5, 5))))
    torch.testing.assert_close(layer(torch.tensor([encoded.ids]))[0].detach(), x)
    torch.testing.assert_close(ch.scaled_dot_product_attention(x, x, x)[0], weights @ x)
    return HeatMaps("From the embedding to what attention makes of it", drawn)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
