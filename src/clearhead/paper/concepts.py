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
from clearhead.paper.growth import one_thread
from clearhead.paper.parts import Check, ModelPart, wrapped
from clearhead.runtime.installation import pip_install

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
        words="16x32; Q = K = V = X; SDPA; SDPA picture; scaled dot-product attention; dot product; equation 1; "
        "softmax; attention; attention function; numerator",
        about="Sixteen words attend to each other. A function with three mistakes has the right shape and rows that "
        "sum to 1, but each word looks at one word alone, whatever is asked (left); the right one spreads its "
        "weights (right). The mistakes: q and k are ignored, the scores come from outside, and they are "
        "multiplied by d^2 = 1,024 instead of divided by sqrt(32). The shape is right all the same: any 16 x 16 "
        "weights times V are 16 x 32. The steps of figure 2 with small numbers: `clearhead paper formulas`.",
        file=_ATTENTION,
        line="scores = (q / math.sqrt(q.size(-1))) @ k.transpose(-2, -1)  # (*heads, T, S)",
        errata=(1, 2, 3, 4, 5, 8, 12, 14),
    ),
    Concept(
        name="soft-dictionary",
        title="Attention as a soft dictionary",
        words="soft dictionary; dictionary; key-value look-up; look-up; similarity; apple, banana, chair; sigmoid or "
        "softmax; sigmoid; weighted sum",
        about="A dictionary needs the exact key. Attention multiplies the value of every key by a weight, and the "
        "softmax makes the weights of a query sum to 1: apple is 10, and fruit, 0.6 an apple and 0.4 a banana, "
        "is 8. A sigmoid will not do: its weights sum to 1.744, so the answer 10.45 exceeds every value. Row: "
        "the query and its answer; column: the key and its value.",
        file=_ATTENTION,
        line="weights = scores.softmax(dim=-1)  # (*heads, T, S)",
        errata=(6, 7, 9, 10, 11),
    ),
    Concept(
        name="self-attention",
        title="Self-attention of a sentence",
        words="A<1>..A<6>; A<1>; A<2>; A<3>; A<4>; A<5>; A<6>; Wq Wk Wv; Wq; Wk; Wv; Wo; Wq Wk Wv Wo; query, key, "
        "value; q, k, v; query; key; value; multi-head attention; multi-head; head; heads; the cat jumped over "
        "the fence",
        about="Every word attends to all, at once. A<t> is the output for word t: the sum of all values, weighted by "
        "how well the query of word t fits each key. With Q = K = V = X (upper pictures) nothing is learned, and "
        "q . k is the same in both directions; the softmax then divides each row by its own sum. W^Q, W^K, W^V "
        "and W^O are what a layer learns, and each head has its own W^Q, W^K and W^V (lower pictures). Without "
        "positions both 'the' get the same row; with them they differ (upper right). The weights are random: the "
        "layer has not learned anything.",
        file=_ATTENTION,
        line="keys, values = self.keys_and_values(query if memory is None else memory)",
        errata=(13, 14, 15, 16, 17),
    ),
    Concept(
        name="several-heads",
        title="Why several heads",
        words="several heads; averaging; averaging inhibits this; one head; single head; representation subspaces; "
        "different positions",
        about="Suppose a layer needs the colour of one word and the number of another. An average is not enough: "
        "whatever weights one head gives to the two words, and whatever its matrices are, it loses half. With equal "
        "weights it brings half of each; with the weights 1 and 0 it brings one of them and nothing of the other. Two "
        "heads of half the width bring both. The weights are set by hand; a head whose weights also depend on colours "
        "and numbers may do somewhat better.",
        file=_ATTENTION,
        line="joined = heads.transpose(1, 2).flatten(2)  # (B, T, H * V): Concat(head_1, ..., head_h)",
        errata=(16,),
    ),
    Concept(
        name="text-to-numbers",
        title="A text becomes numbers",
        words="WordPiece; WordPieces; word pieces; subwords; [UNK]; tokens and ids; tokens; ids; vocabulary; "
        "tokenizer; embedding; embeddings; 10x512; 512x10; 10x10; embedding times sqrt(512); sqrt(512)",
        about="Ten pieces of a text become a 10 x 512 matrix and go through attention. The picture has each matrix "
        "with its shape. One head as wide as the model has d_k = 512, so it divides by sqrt(512); each of the "
        "paper's eight by sqrt(64). The sqrt(512) on the embedding is another: sqrt(d_model). Without W^Q and "
        "W^K each piece fits itself best by far, so attention copies its own vector; only the two 'the' mix, "
        "about 0.95 and 0.05. The embedding is random: nothing has been learned.",
        file="model/embeddings.py",
        line="return functional.embedding(ids, self.weight) * self.scale",
        errata=(2, 8, 17, 29, 32, 33, 50),
    ),
    Concept(
        name="positions",
        title="Positional encodings",
        words="positional encoding; position; PE; sine and cosine; sinusoids; sinusoid; wavelength; order of words",
        about="Each pair (sine, cosine) of the 16 numbers has its own wavelength: quick waves at the top, nearly "
        "constant at the bottom. Added to the words, they tell attention where each word is.",
        file="model/embeddings.py",
        line="x = x + self.positions(start, x.size(1))",
        errata=(34, 35),
    ),
    Concept(
        name="masks",
        title="Masks",
        words="PAD; <pad>; [PAD]; padding; masking; mask; padding mask; causal mask; causal; look-ahead mask; offset "
        "by one; shifted right; up to and including that position",
        about="Who may look at what. A hidden score is minus infinity before the softmax, so its weight is exactly 0; "
        "an input of zeros still gets weight (third picture). Fourth: the decoder reads the target shifted "
        "right, so the row that must write 'chat' sees <s> and 'le', never 'chat'. Rows of <pad> have weights "
        "too, but their outputs are never used. The words' vectors are random.",
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
        words="motivation; RNN; LSTM; GRU; recurrent; recurrence; vanishing gradient; gradient; long sequences; "
        "parallelisation; path length; convolution",
        about="Left: the gradient of a loss at the end of a text with respect to its first symbol, in layers as "
        "PyTorch initialises them, not trained. In a recurrent layer the gradient passes every step in between. "
        "Open forget gates keep it (LSTM, open), but the steps still wait for each other (right). Attention needs "
        "one step for any distance, but its weights are shared by all words, so the gradient falls like 1/distance "
        "(0.001 at 200), not exponentially.",
        file="paper/path_length.py",
        line="state.register_hook(lambda gradient: passed.append(bool((gradient != 0).any())))",
        errata=(40, 41, 42, 43, 45, 46, 49, 52),
    ),
    Concept(
        name="widths",
        title="Widths of heads and of the feed-forward network",
        words="BERT base and large; BERT base; BERT large; FFN; feed-forward; feed-forward network; d_model; d_k; "
        "d_ff; h = d_model / d_k; 768 = 12 x 64; 3072 = 4 x 768; W_1 and W_2; W_1; W_2; ReLU; GELU",
        about="How wide the parts are. Every head reads all numbers of all words and has 64 numbers of its own for the "
        "result (left); a head that saw its part of the embedding alone would read 64 numbers of each word "
        "(right). The feed-forward network is four times as wide inside, and the same at each position: in BERT "
        "base W_1 is 768 x 3072 and W_2 is 3072 x 768. Between them the paper's ReLU, max(0, x), makes negative "
        "numbers 0; BERT's GELU makes them small.",
        file="model/feed_forward.py",
        line="hidden = self.dropout.after(self.activation, hidden)  # max(0, x W1 + b1)",
        errata=(18, 25, 26, 27, 28, 29, 30, 31, 51),
    ),
    Concept(
        name="add-and-norm",
        title="Add & Norm",
        words="add & norm; residual; residual connection; residual connections; skip connection; LayerNorm; layer "
        "normalization; norm",
        about="Add: x + Sublayer(x), a way for words and gradients past each sub-layer. Norm: each word's numbers get "
        "mean 0 and variance 1, then a learned scale and shift. The layers are untrained. Left: without the sum "
        "and the norm the gradient of the first layers vanishes; right: without the sum all words become the "
        "same within a few layers.",
        file="model/residual.py",
        line="return self.norm(x + self.dropout(sublayer(x)))",
        errata=(44,),
    ),
    Concept(
        name="versions",
        title="Versions: encoder alone, decoder alone, both",
        words="versions; version; BERT; GPT; T5; encoder only; encoder alone; decoder only; decoder alone; "
        "encoder-decoder; N = 6",
        about="The same parts give different models: the encoder alone sees the whole text, the decoder alone what is "
        "before, and both together read one text and write another. N = 6: six equal layers a side. The pictures "
        "show which word each state depends on: all of them, or itself and those before.",
        file="config/model.py",
        line="num_encoder_layers: Layers = 6",
        errata=(47,),
    ),
    Concept(
        name="patches-and-frames",
        title="Images and sounds",
        words="applications; application; vision; ViT; images; image; image patches; patches; speech; sounds; sound; "
        "frames of a sound",
        about="Attention does not know what its words are. Sixteen patches of an image, or sixteen frames of a sound, "
        "take the place of sixteen words; a linear map takes the place of the embedding. It learns to name which "
        "of four corners is bright (the picture: lower left) and which of four pitches sounds. The picture has "
        "an image, and image and sound as the encoder reads them, a word a row.",
        file="model/encoder.py",
        line="x = layer(x, mask[:, None, None, :], bias, recorder)",
        errata=(48,),
    ),
    Concept(
        name="bert-generation",
        title="BertGeneration encoder and decoder",
        words="BertGeneration; BertGenerationEncoder; BertGenerationDecoder; add_cross_attention; "
        "encoder_hidden_states; output_hidden_states; output_attentions; 30522",
        about="Two models of Hugging Face transformers, an encoder and a decoder with cross-attention "
        "(`add_cross_attention`), which gets the encoder's states as `encoder_hidden_states`, and the same "
        "weights as one model of ours: equal logits, and equal states (`output_hidden_states`) and attention "
        "(`output_attentions`) of each layer on both sides. The picture is flat, as the weights are random: each "
        "is about 1/8. So the tokens mean nothing: an untrained decoder mostly repeats what it reads, because "
        "its output layer is its embedding.",
        file="interop/huggingface/state.py",
        line='return import_state("encoder-decoder", {"encoder": encoder_config, "decoder": decoder_config}, state)',
        errata=(22, 36, 38, 39),
    ),
    Concept(
        name="logits-to-text",
        title="From logits to a token, and to a text",
        words="logits to token; logits to tokens; logits; logit; softmax and argmax; argmax; hard argmax; greedy; "
        "greedy search; beam; beam search; sampling; temperature",
        about="A logit is a score for each word; softmax makes probabilities of them, argmax takes the largest. Here "
        "each logit is the logarithm of its probability, plus 3: a constant changes no probability, so a logit "
        "alone says nothing of its probability. The weights are set by hand to the table in the picture, so "
        "every sentence's probability is known: the best first word leads to a worse sentence.",
        file="model/embeddings.py",
        line="return functional.linear(x, self.weight, self.bias)",
        errata=(36, 37, 39),
    ),
    Concept(
        name="masked-word",
        title="The word behind a [MASK]",
        words="[MASK]; masked language model; masked word; BERT's hidden states; hidden states; fill in a word",
        about="A BERT that learned three sentences fills in a hidden word of each; here it is read into our encoder, "
        "whose states are the same. Row: the sentence whose word is hidden; column: a word; number: its "
        "probability there.",
        file="model/transformer.py",
        line="self.record(Recorder(hidden=hidden), source, target, segments)",
    ),
    Concept(
        name="reverse-digits",
        title="A Transformer that learns to reverse digits",
        words="training from scratch; training; toy task; alignment; anti-diagonal",
        about="A Transformer learns from nothing but pairs, in seconds, to write digits in reverse order. To write the "
        "first it must look at the last, and so its cross-attention is an anti-diagonal. Where the row of </s> "
        "looks need not mean anything: after six digits the text ends, whatever they are.",
        file="training/step.py",
        line="(whole_loss / tokens * self.workers.count).backward()  # the workers average gradients",
    ),
    Concept(
        name="what-attention-shows",
        title="What attention maps show, and what not",
        words="attention map; attention maps; heat map; head switched off; ablation; interpretation; explanation",
        about="A map shows where a head looks, not what it does with it. The weights are set by hand: the layer copies "
        "'teach!' and, because of the '!', writes it in capitals. Head 1 copies. Head 2 looks at the letter "
        "before, but nothing reads what it brings. Head 3 averages all places to find the '!'. ? : all letters "
        "score alike. Each title says what is written when its head is switched off.",
        file="inspection/ablation.py",
        line="columns.zero_()",
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
    # One thread: its products are too small for more.
    with torch.random.fork_rng(devices=[]), redirect_stdout(printed), one_thread():
        try:
            exec(compile(text, concept.program, "exec"), names)
            figures = {concept.name: names["main"]()}
        except ImportError as error:
            raise ClearheadError(f"the concept {concept.name} needs {error.name}: {pip_install('interop')}") from None
        except AssertionError as error:
            check = Check(check.name, False, str(error) or "an assertion of the program failed")
    related = f"Errata about it: {', '.join(map(str, concept.errata))}\n" if concept.errata else ""
    related = f"\n{related}The picture: clearhead paper concepts {concept.name} -o DIR\n"
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
