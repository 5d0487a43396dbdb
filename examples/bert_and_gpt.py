"""The encoder alone is a model like BERT, the decoder alone one like GPT: the same parts, told apart by one mask.

Both learn the same language, counting in equal steps around a clock of 7 hours, such as 2 5 1 4 0 3 6 2. BERT fills in
a masked word from both sides, GPT names the next word from the left. Run it: python examples/bert_and_gpt.py
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import clearhead as ch

BOS, MASK, ZERO, HOURS, LENGTH = 1, 3, 4, 7, 8  # 0 is padding, 2 the end; hour h is ZERO + h
PARTS = ch.ModelConfig(vocab_size=ZERO + HOURS, d_model=64, d_ff=128, num_heads=4, dropout=0.0)


def draw_sentences(count: int) -> Tensor:
    """Return sentences [count, LENGTH]: a random first hour, then equal steps of 0 to 6 hours."""
    first, step = torch.randint(HOURS, (2, count, 1))
    return (first + step * torch.arange(LENGTH)) % HOURS + ZERO


def bert_logits(model: ch.Transformer, words: Tensor) -> Tensor:
    """Score every word at each place; the embedding is the output matrix too, as in section 3.4."""
    return model.encode(words)[0] @ model.source_embedding.weight.T


def gpt_logits(model: ch.Transformer, words: Tensor) -> Tensor:
    """Score every word at each place from those before it: the decoder reads them shifted right."""
    return model.decode(torch.cat([torch.full_like(words[:, :1], BOS), words[:, :-1]], dim=1))[0]


def train(model: ch.Transformer, loss_of: Callable[[Tensor], Tensor]) -> None:
    """Take 300 steps of Adam."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(300):
        loss = loss_of(draw_sentences(64))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main() -> None:
    """Compare what the two can see, then what they learn."""
    torch.manual_seed(1)
    bert = ch.Transformer(PARTS.model_copy(update={"num_encoder_layers": 2, "num_decoder_layers": 0}))
    gpt = ch.Transformer(PARTS.model_copy(update={"num_encoder_layers": 0, "num_decoder_layers": 2}))
    words = torch.tensor([[2, 5, 1, 4, 0, 3, 6, 2]]) + ZERO
    other = torch.tensor([[2, 5, 1, 4, 0, 3, 6, 1]]) + ZERO  # another last word
    bert_moves = (bert.encode(words)[0] != bert.encode(other)[0]).any(dim=-1)[0].tolist()
    gpt_moves = (gpt.decode(words)[0] != gpt.decode(other)[0]).any(dim=-1)[0].tolist()
    print(f"the last word changes; which places notice?\n  BERT {bert_moves}\n  GPT  {gpt_moves}")
    assert bert_moves == [True] * LENGTH  # no mask: both sides
    assert gpt_moves == [False] * (LENGTH - 1) + [True]  # causal mask: the left side, bit for bit

    def masked_word_loss(words: Tensor) -> Tensor:
        hidden = torch.arange(LENGTH) == torch.randint(LENGTH, (len(words), 1))  # one word of each sentence
        return cross_entropy(bert_logits(bert, words.masked_fill(hidden, MASK))[hidden], words[hidden])

    train(bert, masked_word_loss)
    train(gpt, lambda words: cross_entropy(gpt_logits(gpt, words).flatten(0, 1), words.flatten()))
    words, one = draw_sentences(700), torch.eye(LENGTH, dtype=torch.bool)  # row i hides place i
    filled_in = [bert_logits(bert, words.masked_fill(one[i], MASK))[:, i].argmax(dim=-1) for i in range(LENGTH)]
    bert_right = (torch.stack(filled_in, dim=1) == words).float().mean(dim=0)
    gpt_right = (gpt_logits(gpt, words).argmax(dim=-1) == words).float().mean(dim=0)
    print("share of right words, place by place")
    for name, right in (("BERT, a masked word", bert_right), ("GPT, the next word", gpt_right)):
        print(f"  {name:<20} " + " ".join(f"{share:4.0%}" for share in right.tolist()))
    assert bert_right.min() > 0.95  # even the first word: what follows gives it away
    assert gpt_right[:2].max() < 0.25  # a first hour and a step can only be guessed, 1 in 7
    assert gpt_right[2:].min() > 0.95


if __name__ == "__main__":
    main()
