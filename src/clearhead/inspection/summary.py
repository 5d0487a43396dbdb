"""Text summary of an explanation, for a terminal."""

from __future__ import annotations

from clearhead.inspection.explanation import Explanation
from clearhead.inspection.head_roles import clearest_head
from clearhead.inspection.tokens import printable, visible
from clearhead.text.lines import percent

_MOST_STEPS = 60
_MOST_FINISHED = 5


def summary_lines(explanation: Explanation) -> list[str]:
    """Return the translation, each step's probability and attention, finished hypotheses, and the clearest heads."""
    lines = [f"source       {printable(explanation.source)}"]
    if explanation.kind == "encoder":
        shape = explanation.encoder.shape
        lines.append(f"an encoder alone: {shape[0]} layers of {shape[1]} heads over {shape[2]} tokens, no translation")
        return lines + _head_lines(explanation)
    lines.append(f"translation  {printable(explanation.translation)}")
    lines.append(f"score        {explanation.score:.4f} over {len(explanation.target_tokens)} tokens")
    if (highest := explanation.model.get("highest_probability")) is not None and highest < 1.0:
        lines.append(
            f"trained with label smoothing {explanation.model['label_smoothing']:g}: a perfect model would say "
            f"{highest:.1%}, not 100%"
        )
    if len(explanation.alignment):
        lines.append(f"where it looks is told by {explanation.alignment_head}")
    rows = [("step", "token", "probability", "looks most at", "other candidates")]
    for number, step in enumerate(explanation.steps[:_MOST_STEPS]):
        looked = ""
        if len(explanation.alignment):
            weights = explanation.alignment[number]
            looked = f"{visible(explanation.source_tokens[int(weights.argmax())])} {weights.max():.0%}"
        others = [candidate for candidate in step.candidates if candidate.token != step.token][:3]
        rows.append(
            (
                str(number + 1),
                visible(step.token),
                f"{step.probability:.1%}",
                looked,
                ", ".join(f"{visible(candidate.token)} {candidate.probability:.1%}" for candidate in others),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines += ["", *("  ".join([*map(str.ljust, row, widths), row[-1]]).rstrip() for row in rows)]
    if (more := len(explanation.steps) - _MOST_STEPS) > 0:
        lines.append(f"and {more:,} more steps; --format json has them all")
    lines += _memory_lines(explanation) + _search_lines(explanation) + _head_lines(explanation)
    if explanation.ablation is not None:
        lines += ["", "without each head, the one missed most first", *explanation.ablation.lines()]
    return lines


def _memory_lines(explanation: Explanation) -> list[str]:
    """Return the pairs that the model consulted, and the tokens that got most of their probability from each."""
    if (memory := explanation.memory) is None:
        return []
    lines = [
        "",
        f"similar pairs of the memory, with a weight of {memory.weight:.0%} at most, and the tokens they support:",
    ]
    steps = list(zip(explanation.target_tokens, memory.steps, strict=True))
    for number, pair in enumerate(memory.pairs):
        tokens = [f"{visible(token)} {step.probability:.0%}" for token, step in steps if step.pair == number]
        lines.append(f"  {percent(pair.similarity)}%  {printable(pair.source)} -> {printable(pair.target)}")
        lines.append(f"       {', '.join(tokens) or 'none'}")
    return lines


def _search_lines(explanation: Explanation) -> list[str]:
    if explanation.search is None:
        return []
    search = explanation.to_search()
    lines = ["", f"beam search of {search['beam_size']}: {len(search['nodes']):,} hypotheses considered"]
    lines.append("finished, ranked by log-probability over the length penalty:")
    for hypothesis in search["finished"][:_MOST_FINISHED]:
        lines.append(f"  {hypothesis['rank_score']:9.4f}  {printable(hypothesis['text'])}")
    return lines


def _head_lines(explanation: Explanation) -> list[str]:
    """Return the clearest head of each attention and its role."""
    lines = ["", "the clearest head of each attention (layer.head)"]
    for name, roles in explanation.head_roles.items():
        layer, head = clearest_head(roles)
        lines.append(f"  {name} {layer + 1}.{head + 1}: {roles[layer][head].sentence}")
    return lines
