"""Concepts of notes on the paper: the words people use for each, a short program, its picture, and related errata.

The programs are the files of `examples/`; a wheel has them beside this module.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch

from clearhead.errors import ClearheadError
from clearhead.paper.parts import Check, ModelPart, wrapped

_HERE = Path(__file__).parent
EXAMPLES = _HERE / "examples" if (_HERE / "examples").is_dir() else _HERE.parents[2] / "examples"
"""The directory of the programs: in the package where it is installed, otherwise in the repository."""


@dataclass(frozen=True, kw_only=True)
class Concept:
    """A concept, with what it is called and where it is."""

    name: str
    """Its name in `clearhead paper concepts NAME`, and with underscores that of its program."""
    title: str
    words: str
    """What people call it, and what belongs to it, separated by semicolons."""
    about: str
    """What it is, and what to see in the picture."""
    file: str
    """Module of the package where it is, such as `model/attention.py`."""
    line: str
    """The line of that module that computes it."""
    errata: tuple[int, ...] = ()
    """Numbers of the errata about it."""

    @property
    def called(self) -> tuple[str, ...]:
        """The words for it, one by one."""
        return tuple(self.words.split("; "))

    @property
    def program(self) -> Path:
        """File of the program."""
        return EXAMPLES / f"{self.name.replace('-', '_')}.py"


_ATTENTION = "model/attention.py"

CONCEPTS = (
    Concept(
        name="one-attention-layer",
        title="One attention layer",
        words="16x32; Q = K = V = X; SDPA; SDPA picture; scaled dot-product attention; equation 1; softmax",
        about="Sixteen words attend to each other. A function with three mistakes has the right shape and rows that "
        "sum to 1, but each word looks at one word alone, whatever is asked (left); the right one spreads its weights "
        "(right). The steps of figure 2 with small numbers: `clearhead paper formulas`.",
        file=_ATTENTION,
        line="scores = (q / math.sqrt(q.size(-1))) @ k.transpose(-2, -1)  # (*heads, T, S)",
        errata=(1, 2, 3, 4, 5, 8, 12, 14),
    ),
    Concept(
        name="soft-dictionary",
        title="Attention as a soft dictionary",
        words="soft dictionary; key-value look-up; similarity; apple, banana, chair; sigmoid or softmax; sigmoid",
        about="A dictionary needs the exact key. Attention multiplies the value of every key by a weight, and the "
        "softmax makes the weights of a query sum to 1. Row: the query; column: the key.",
        file=_ATTENTION,
        line="weights = scores.softmax(dim=-1)  # (*heads, T, S)",
        errata=(6, 7, 9, 10, 11),
    ),
    Concept(
        name="self-attention",
        title="Self-attention of a sentence",
        words="A<1>..A<6>; A<1>; A<2>; Wq Wk Wv; Wq; Wk; Wv; query, key, value; multi-head attention; the cat "
        "jumped over the fence",
        about="Every word attends to all, at once. With Q = K = V = X nothing is learned and two words always fit each "
        "other alike; W^Q, W^K and W^V are what a layer learns, and each head has its own (below). Without "
        'positions both "the" get the same row; with them they differ (above). The weights are random: the layer '
        "has not learned anything.",
        file=_ATTENTION,
        line="keys, values = self.keys_and_values(query if memory is None else memory)",
        errata=(13, 14, 15, 16, 17),
    ),
    Concept(
        name="text-to-numbers",
        title="A text becomes numbers",
        words="WordPiece; tokens and ids; 10x512; 512x10; 10x10; embedding times sqrt(512)",
        about="Ten pieces of a text become a 10 x 512 matrix and go through attention. Without W^Q and W^K each piece "
        "fits itself best by far, so attention copies its own vector. The picture has each matrix with its shape. "
        "The embedding is random: nothing has been learned.",
        file="model/embeddings.py",
        line="return functional.embedding(ids, self.weight) * self.scale",
        errata=(2, 8, 17, 29, 32, 33),
    ),
    Concept(
        name="positions",
        title="Positional encodings",
        words="positional encoding; sine and cosine; sinusoids; order of words",
        about="Each row of the picture is one of 16 numbers, a sine or cosine of the position with its own wavelength. "
        "Added to the words, they tell attention where each word is.",
        file="model/embeddings.py",
        line="x = x + self.positions(start, x.size(1))",
        errata=(34, 35),
    ),
    Concept(
        name="masks",
        title="Masks",
        words="PAD; <pad>; masking; mask; padding mask; causal mask; look-ahead mask; offset by one; shifted right; "
        "up to and including that position",
        about="Who may look at what. A hidden score is minus infinity before the softmax, so its weight is exactly 0; "
        "an input of zeros still gets weight (third picture). Rows of <pad> have weights too, but their outputs "
        "are never used. The words' vectors are random.",
        file=_ATTENTION,
        line='scores = scores.masked_fill(~mask, float("-inf"))',
        errata=(19, 20, 21, 38),
    ),
    Concept(
        name="three-uses-of-attention",
        title="Three uses of attention",
        words="cross-attention; encoder-decoder attention; who gives query, key and value; memory; encoder; decoder",
        about="One function, used three times. In cross-attention the decoder asks: the keys and the values are made "
        "from the encoder's output by W^K and W^V, the queries from the decoder's states by W^Q; the value is "
        "never the decoder's input. The model is untrained: the weights show who may look at whom, not what it "
        "has learned.",
        file="model/decoder.py",
        line="keys_and_values = self.cross_attn.keys_and_values(memory)",
        errata=(22, 23, 24),
    ),
    Concept(
        name="why-not-recurrent",
        title="Why not recurrent",
        words="motivation; RNN; LSTM; GRU; vanishing gradient; long sequences; parallelisation",
        about="The gradient of a loss at the end of a text with respect to its first symbol, in layers as PyTorch "
        "initialises them, not trained. In a recurrent layer the gradient passes every step in between. Gates can "
        "learn to keep it, as in the LSTM whose forget gates begin open, but its steps still wait for each other. "
        "Attention needs one step for any distance, but as all weights sum to 1, its gradient is smaller there.",
        file="paper/path_length.py",
        line="state.register_hook(lambda gradient: passed.append(bool((gradient != 0).any())))",
        errata=(40, 41, 42, 43, 52),
    ),
    Concept(
        name="widths",
        title="Widths of heads and of the feed-forward network",
        words="BERT base and large; BERT base; BERT large; FFN; feed-forward; feed-forward network; h = d_model / "
        "d_k; 768 = 12 x 64; 3072 = 4 x 768; W_1 and W_2; ReLU",
        about="How wide the parts are. Every head reads all numbers of all words and has 64 numbers of its own for the "
        "result; the feed-forward network is four times as wide inside, and the same at each position.",
        file="model/feed_forward.py",
        line="hidden = self.dropout.after(self.activation, hidden)  # max(0, x W1 + b1)",
        errata=(18, 25, 26, 27, 28, 29, 30, 31, 51),
    ),
    Concept(
        name="add-and-norm",
        title="Add & Norm",
        words="add & norm; residual connection; skip connection; LayerNorm; layer normalization",
        about="Add: x + Sublayer(x), so that words and gradients pass a layer unchanged. Norm: each word's numbers get "
        "mean 0 and variance 1. Left: without the sum and the norm the gradient of the first layers vanishes; "
        "right: without the sum all words become the same within a few layers.",
        file="model/residual.py",
        line="return self.norm(x + self.dropout(sublayer(x)))",
        errata=(44,),
    ),
    Concept(
        name="versions",
        title="Versions: encoder alone, decoder alone, both",
        words="versions; version; BERT; GPT; T5; encoder only; decoder only; N = 6",
        about="The same parts give different models: the encoder alone sees the whole text, the decoder alone what is "
        "before, and both together read one text and write another. The pictures show which word each state "
        "depends on: all of them, or itself and those before.",
        file="config/model.py",
        line="num_encoder_layers: Layers = 6",
        errata=(47,),
    ),
    Concept(
        name="patches-and-frames",
        title="Images and sounds",
        words="applications; application; vision; ViT; image patches; speech; frames of a sound",
        about="Attention does not know what its words are. Sixteen patches of an image, or sixteen frames of a sound, "
        "take the place of sixteen words; a linear map takes the place of the embedding. The picture has an image, "
        "and image and sound as the encoder reads them, a word a row.",
        file="model/encoder.py",
        line="x = layer(x, mask[:, None, None, :], bias, recorder)",
    ),
    Concept(
        name="bert-generation",
        title="BertGeneration encoder and decoder",
        words="BertGeneration; BertGenerationEncoder; BertGenerationDecoder; add_cross_attention; "
        "encoder_hidden_states; output_hidden_states; output_attentions; 30522",
        about="Two models of Hugging Face transformers, an encoder and a decoder with cross-attention, and the same "
        "weights as one model of ours: equal logits, states and attention. The weights are random, so the tokens "
        "mean nothing: an untrained decoder mostly repeats what it reads.",
        file="interop/huggingface/state.py",
        line='return import_state("encoder-decoder", {"encoder": encoder_config, "decoder": decoder_config}, state)',
        errata=(22, 36, 38),
    ),
    Concept(
        name="logits-to-text",
        title="From logits to a token, and to a text",
        words="logits to token; logits; logit; softmax and argmax; greedy; beam search; sampling; temperature",
        about="A logit is a score for each word; softmax makes probabilities of them, argmax takes the largest. The "
        "weights are set by hand to the table in the picture, so every sentence's probability is known: the best "
        "first word leads to a worse sentence.",
        file="model/embeddings.py",
        line="return functional.linear(x, self.weight, self.bias)",
        errata=(36, 37, 39),
    ),
    Concept(
        name="masked-word",
        title="The word behind a [MASK]",
        words="[MASK]; masked language model; BERT's hidden states; fill in a word",
        about="A BERT that learned three sentences fills in a hidden word of each; here it is read into our encoder, "
        "whose states are the same. Row: the sentence whose word is hidden; column: the probability of a word "
        "there.",
        file="model/transformer.py",
        line="self.record(Recorder(hidden=hidden), source, target, segments)",
    ),
    Concept(
        name="reverse-digits",
        title="A Transformer that learns to reverse digits",
        words="training from scratch; toy task; alignment; anti-diagonal",
        about="A Transformer learns from nothing but pairs, in seconds, to write digits in reverse order. To write the "
        "first it must look at the last, and so its cross-attention is an anti-diagonal.",
        file="training/step.py",
        line="(whole_loss / tokens * self.workers.count).backward()  # the workers average gradients",
    ),
    Concept(
        name="what-attention-shows",
        title="What attention maps show, and what not",
        words="attention map; heat map; head switched off; ablation; interpretation; explanation",
        about="A map shows where a head looks, not what it does with it. Head 2 looks as sharply as head 1, and "
        "nothing changes without it; head 3 looks everywhere alike, and without it the word is no longer loud. A "
        "question mark is a letter that no score decides.",
        file="inspection/ablation.py",
        line="columns.zero_()",
        errata=(16,),
    ),
)
"""The concepts, in an order in which they build on each other."""


def find(words: str) -> Concept:
    """Return the concept of a name, or of words that people use for it; case, spaces and signs do not count.

    Raises:
        ClearheadError: If there is none; the message names the nearest.
    """
    known = {_plain(word): one for one in CONCEPTS for word in (one.name, one.title, *one.called)}
    if found := known.get(_plain(words)):
        return found
    near = [f"; did you mean {known[one].name}?" for one in get_close_matches(_plain(words), known, n=1, cutoff=0.7)]
    raise ClearheadError(
        f"there is no concept {words!r}{''.join(near)}\nThe concepts: {', '.join(one.name for one in CONCEPTS)}"
    )


def _plain(words: str) -> str:
    """Return words as their letters and digits alone, with `and` for an ampersand; `[MASK]` is not a mask."""
    return re.sub(r"[^\w\[\]]|_", "", words.casefold().replace("&", " and ").replace("×", "x"))


def concept_part(concept: Concept) -> ModelPart:
    """Run the program of a concept; return its text, what it prints, and its picture.

    Raises:
        ClearheadError: If a package that the program needs is not installed.
    """
    text = concept.program.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": concept.name}
    printed, figures, check = io.StringIO(), {}, Check("what the program asserts", True, "all of it holds")
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]), redirect_stdout(printed):
        torch.set_num_threads(1)  # these products are too small for more
        try:
            exec(compile(text, concept.program, "exec"), names)
            figures = {concept.name: names["main"]()}
        except ImportError as error:
            raise ClearheadError(
                f"the concept {concept.name} needs {error.name}: pip install 'clearhead[interop]'"
            ) from None
        except AssertionError as error:
            check = Check(check.name, False, str(error) or "an assertion of the program failed")
        finally:
            torch.set_num_threads(threads)
    related = f"\nErrata about it: {', '.join(map(str, concept.errata))}\n" if concept.errata else ""
    return ModelPart(
        title=concept.title,
        text="\n".join([*wrapped(concept.about), "", text, "# It prints:", "", printed.getvalue() + related]),
        figures=figures,
        data={"words": concept.called, "program": text, "printed": printed.getvalue(), "errata": concept.errata},
        checks=(check,),
    )


def concept_list() -> str:
    """Return the names of all concepts, each with the words people use for it."""
    lines = [f"{concept.name:<24}{concept.words}" for concept in CONCEPTS]
    return "\n".join(
        [*lines, "", "clearhead paper concepts NAME shows a program and runs it; NAME may be any of the words.", ""]
    )
