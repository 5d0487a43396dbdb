"""Attack: random changes of a module in memory; translations and scores are those of the changed module."""

from __future__ import annotations

import math
import warnings
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial, wraps
from random import Random
from typing import Any
from unicodedata import normalize

from harness import Attack, Campaign, Case, Outcome, judged
from materials import ENGLISH, KINDS, make_bundle, sentences

SHAPES: dict[str, dict[str, int]] = {"core": {"d_model": 64, "num_heads": 2, "d_k": 16, "d_v": 16, "d_ff": 96}, "": {}}
"""Settings of models that the compiled core computes, and of those that it does not."""
GREEDY = {"beam_size": 1, "familiar": False, "split": "never", "raw": True, "end_loops": False}
TOLERANCE = 2e-3
"""Difference of two scores by the order of additions alone, as a share of scores beyond 1."""
IN_A_CASE = 5
"""Changes one after the other, each of which is noticed."""


def cases(campaign: Campaign) -> Iterator[Case]:
    """Change one module five times in every case."""
    for_each = min(IN_A_CASE, campaign.count)
    for number in campaign.numbers(for_each):
        choose = campaign.choose(number)
        kind, shape = choose.choice(KINDS), choose.choice(list(SHAPES))
        arguments = {"kind": kind, "shape": shape, "changes": for_each, "seed": choose.random()}
        name = f"{kind}{', core' if shape else ''}"
        yield Case(number, name, "changed_modules:attack", arguments, seconds=60.0)


def attack(kind: str, shape: str, changes: int, seed: float) -> list[dict[str, str]]:
    """Change a module, and compare translations and scores with calls of the module; runs in a child."""
    from clearhead.translation.translator import Translator

    choose = Random(seed)
    translator = Translator(make_bundle(kind, choose.randrange(99), **SHAPES[shape]))
    results = []
    with ExitStack() as undone, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the module computes itself
        for _ in range(changes):
            [source] = sentences(1, choose.randrange(2**30), longest=5)
            target = " ".join(choose.choices(ENGLISH, k=choose.randint(1, 4)))
            _both(translator, source, target)  # what is packed now must not be used later
            change = choose.choice(CHANGES)
            name = f"{change.__name__.removeprefix('_')} {change(translator.model, choose, undone) or ''}"
            trouble, is_refused = _differences(*_both(translator, source, target))
            outcome = Outcome.wrong if trouble else Outcome.refused if is_refused else Outcome.works
            results.append({"outcome": outcome, "detail": f"{name}: {trouble}"})
    return results


Found = tuple[Any, Any]
"""A score and a translation, or the error in their place."""


def _both(translator: Any, source: str, target: str) -> tuple[Found, Found]:
    """Return what the translator says, and what calls of its module say."""
    said = (
        _or_error(lambda: translator.score([source], [target])[0]),
        _or_error(lambda: translator.translate([source], **GREEDY)[0].text),
    )
    return said, (_or_error(lambda: _score(translator, source, target)), _or_error(lambda: _greedy(translator, source)))


def _or_error(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        return error


def _differences(said: Found, by_hand: Found) -> tuple[str, bool]:
    """Return how the translator differs from its module, and whether it refuses it."""
    from clearhead.errors import ClearheadError

    for one, expected in zip(said, by_hand, strict=True):
        if isinstance(one, Exception) and not isinstance(one, ClearheadError | type(expected)):
            return f"{type(one).__name__}: {one}; the module: {expected!r}", False
        is_sound = not isinstance(expected, Exception) and expected is not None
        if isinstance(one, Exception) or not is_sound:
            continue
        if isinstance(one, float):
            if not math.isclose(one, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
                return f"a score of {one}; the module: {expected}", False
        elif not one.startswith(normalize("NFC", expected)):  # as texts are written
            return f"{one!r}; the module: {expected!r}", False
    return "", any(isinstance(one, Exception) for one in said)


def _encoded(translator: Any, source: str, target: str) -> tuple[list[int], list[int]]:
    pieces = translator.pair_encoder.split_sources([source], translator.bundle.decode.target_lang)
    [source_ids], [target_ids] = translator.pair_encoder.encode(pieces, [target], translator.bundle.decode)
    return source_ids, target_ids


def _score(translator: Any, source: str, target: str) -> float:
    """Return the log-probability of a target by one call of the module."""
    import torch

    source_ids, target_ids = _encoded(translator, source, target)
    with torch.inference_mode():
        logits = translator.model(
            torch.tensor([source_ids]), torch.tensor([[translator.config.bos_id, *target_ids[:-1]]])
        )
        found = logits.double().log_softmax(dim=-1)[0, range(len(target_ids)), target_ids].sum().item()
    if not math.isfinite(found):
        raise ValueError("its probabilities are not numbers")
    return found


def _greedy(translator: Any, source: str) -> str | None:
    """Return the beginning of the greedy translation by calls of the module; None where two tokens are as probable.

    A character that has begun is continued (RFC 3629); near the limit a search begins none, so this ends before.
    """
    import torch

    config, tokenizer = translator.config, translator.bundle.tokenizer
    source_ids, _ = _encoded(translator, source, "")
    written, pending, parts = [config.bos_id], b"", tokenizer.parts_of_characters()
    wrong: dict[bytes, list[int]] = {}
    with torch.inference_mode():
        for _ in range(len(source_ids) + translator.bundle.decode.extra_length - 6):
            logits = translator.model(torch.tensor([source_ids]), torch.tensor([written]))[0, -1].double()
            logits[[config.pad_id, config.bos_id]] = -math.inf
            if pending not in wrong:
                others = [one for one in range(config.vocab_size) if one not in parts] if pending else []
                wrong[pending] = others + [one for one, data in parts.items() if not _begins_utf8(pending + data)]
            logits[wrong[pending]] = -math.inf
            best, second = logits.topk(2).values.tolist()
            if not best - second > TOLERANCE * max(1.0, abs(best)):
                return None
            written.append(token := int(logits.argmax()))
            if token == config.eos_id:
                break
            pending += parts.get(token, b"")
            if _is_utf8(pending):
                pending = b""
    return tokenizer.decode(written[1:]).rstrip("\ufffd")


def _is_utf8(data: bytes) -> bool:
    return data.decode("utf-8", "replace").encode() == data


def _begins_utf8(data: bytes) -> bool:
    try:
        getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def _scaled(value: Any, factor: float) -> Any:
    """Return an output with its numbers scaled."""
    import torch

    if isinstance(value, tuple | list):
        return type(value)(_scaled(one, factor) for one in value)
    is_scaled = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value * factor if is_scaled else value


def _scaling(function: Callable[..., Any], factor: float) -> Callable[..., Any]:
    @wraps(function)
    def scaled(*args: Any, **named: Any) -> Any:
        return _scaled(function(*args, **named), factor)

    return scaled


def _part(model: Any, choose: Random, *, is_called: bool = True) -> tuple[str, Any]:
    """Return the name of a part of the module, and the part."""
    parts = [(name, one) for name, one in model.named_modules() if name and not (is_called and hasattr(one, "__len__"))]
    return choose.choice(parts)


def _weight(model: Any, choose: Random, undone: ExitStack) -> str:
    """Change a weight, in one of the ways in which it can be written."""
    import torch

    name, weight = choose.choice(list(model.named_parameters()))
    factor = choose.choice((-1.0, 0.0, 0.5, 1.01, 3.0))
    way = choose.choice(("data", "numpy", "in place", "other data", "another parameter", "a row", "rows exchanged"))
    with torch.no_grad():
        match way:
            case "data":
                weight.data.mul_(factor)
            case "numpy":
                weight.detach().numpy()[...] *= factor
            case "in place":
                weight.mul_(factor)
            case "other data":
                weight.data = weight.data * factor
            case "another parameter":
                owner, _, own = name.rpartition(".")
                setattr(model.get_submodule(owner), own, torch.nn.Parameter(weight * factor))
            case "a row":
                weight.data[choose.randrange(len(weight))] *= factor
            case "rows exchanged":
                first, second = choose.randrange(len(weight)), choose.randrange(len(weight))
                weight.data[[first, second]] = weight.data[[second, first]]
    return f"{name}, {way}, {factor}"


def _table(model: Any, choose: Random, undone: ExitStack) -> str:
    tables = [(name, one) for name, one in model.named_buffers() if one.is_floating_point()]
    if not tables:
        return _weight(model, choose, undone)
    name, table = choose.choice(tables)
    table.mul_(choose.choice((0.0, 0.5)))
    return name


def _hook(model: Any, choose: Random, undone: ExitStack) -> str:
    (name, part), factor = _part(model, choose), choose.choice((-1.0, 0.5))
    if choose.random() < 0.5:
        part.register_forward_hook(lambda module, inputs, output: _scaled(output, factor))
        return name
    part.register_forward_pre_hook(lambda module, inputs: _scaled(inputs, factor))
    return f"{name}, before"


def _hook_of_all(model: Any, choose: Random, undone: ExitStack) -> str:
    from torch.nn.modules.module import register_module_forward_hook

    kind = type(_part(model, choose)[1])

    def halved(module: Any, inputs: Any, output: Any) -> Any:
        return _scaled(output, 0.5) if type(module) is kind else None

    undone.callback(register_module_forward_hook(halved).remove)
    return kind.__name__


def _method(model: Any, choose: Random, undone: ExitStack) -> str:
    """Replace a method of one part, mostly `forward`."""
    name, part = choose.choice([("", model), _part(model, choose), _part(model, choose)])
    own = [one for one, value in vars(type(part)).items() if callable(value) and not one.startswith("_")]
    method = choose.choice(["forward", *own])
    setattr(part, method, _scaling(getattr(part, method), 0.5))
    return f"{name}.{method}"


def _method_of_a_class(model: Any, choose: Random, undone: ExitStack) -> str:
    _, part = _part(model, choose)
    kind, before = type(part), vars(type(part)).get("forward")
    if before is None:
        return _method(model, choose, undone)
    kind.forward = _scaling(before, 0.5)
    undone.callback(partial(setattr, kind, "forward", before))
    return kind.__name__


def _class(model: Any, choose: Random, undone: ExitStack) -> str:
    name, part = _part(model, choose)
    part.__class__ = type("Other", (type(part),), {"forward": _scaling(type(part).forward, 0.5)})
    return name


def _another_part(model: Any, choose: Random, undone: ExitStack) -> str:
    from torch import nn

    name, part = _part(model, choose)
    owner, _, own = name.rpartition(".")

    class Scaled(nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *args: Any, **named: Any) -> Any:
            return _scaled(self.inner(*args, **named), 0.5)

        def __getattr__(self, name: str) -> Any:  # what others read of the part
            return super().__getattr__(name) if name == "inner" else getattr(self.inner, name)

    model.get_submodule(owner)._modules[own] = choose.choice((nn.Identity, Scaled, Scaled))(part)
    return name


def _attribute(model: Any, choose: Random, undone: ExitStack) -> str:
    """Change a number, a switch or a function of one part."""
    import torch

    found = [
        (name, part, own, value)
        for name, part in model.named_modules()
        for own, value in vars(part).items()
        if not own.startswith("_") and own != "training" and (isinstance(value, int | float) or callable(value))
    ]
    name, part, own, value = choose.choice(found)
    if isinstance(value, bool):
        changed: Any = not value
    elif isinstance(value, int | float):
        changed = type(value)(value * choose.choice((2, 0.5)))
    else:
        changed = torch.tanh
    setattr(part, own, changed)
    return f"{name}.{own} = {getattr(changed, '__name__', changed)}"


def _layers(model: Any, choose: Random, undone: ExitStack) -> str:
    side = choose.choice(("encoder", "decoder"))
    layers = getattr(model, side).layers
    way = choose.choice(("repeated", "left out", "exchanged"))
    if way == "repeated":
        layers.append(layers[0])
    elif way == "left out":
        getattr(model, side).layers = layers[1:]
    elif len(layers) > 1:
        layers[0], layers[-1] = layers[-1], layers[0]
    return f"{side}, {way}"


CHANGES = (
    *(_weight, _weight, _weight, _table, _hook, _hook_of_all, _method, _method, _method_of_a_class, _class),
    *(_another_part, _attribute, _layers),
)
"""Change a module, and return what in it."""

ATTACK = Attack("changed modules", "changes", full=500, few=10, run=judged(cases))
