from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
import torch
from searches import WIDTHS

from clearhead.decoding import Engine, NativeEngine, PyTorchEngine
from clearhead.kernels.library import library
from clearhead.model import Transformer


@pytest.fixture
def make_sharp_model(make_model) -> Callable[..., Transformer]:
    """Return a function like `make_model` whose models are sure of themselves: no two hypotheses come near a tie.

    The matrices of the layers are scaled up more than the embedding, or the shared embedding would repeat its input.
    """

    def make(**settings: object) -> Transformer:
        model = make_model(**{"norm": "pre", "num_encoder_layers": 1, "num_decoder_layers": 2, **settings})
        embedding = model.target_embedding if model.config.is_decoder_alone else model.source_embedding
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() == 2:
                    weight.mul_(2.0 if weight is embedding.weight else 4.0)
        return model

    return make


@pytest.fixture
def refuse_second_thread(monkeypatch) -> Callable[[BaseException], None]:
    """Return a function that makes the second thread that is started from now on raise an error."""

    def refuse(error: BaseException) -> None:
        started = []
        start = Thread.start

        def start_one(thread: Thread) -> None:
            started.append(thread)
            if len(started) == 2:
                raise error
            start(thread)

        monkeypatch.setattr(Thread, "start", start_one)

    return refuse


@pytest.fixture
def make_sources() -> Callable[..., list[list[int]]]:
    """Return a function that draws source ids of given lengths, each ended by the end token (id 2)."""

    def make(lengths: tuple[int, ...], vocab_size: int = 37) -> list[list[int]]:
        return [[*torch.randint(3, vocab_size, (length - 1,)).tolist(), 2] for length in lengths]

    return make


@pytest.fixture(params=WIDTHS)
def form(request: pytest.FixtureRequest) -> type[Engine]:
    """Return the class of a model that is ready to decode: in PyTorch, or for the compiled core."""
    if request.param is NativeEngine and library() is None:
        pytest.skip("needs the compiled core")
    return request.param


@pytest.fixture
def make_ending_model(make_sharp_model: Callable[..., Transformer], form: type[Engine]) -> Callable[..., Transformer]:
    """Return a function like `make_sharp_model` whose models end some translations early and some at the limit."""

    def make(norm: str = "pre", **settings: object) -> Transformer:
        torch.manual_seed(3)
        model = make_sharp_model(**{"norm": norm, "output_bias": True, **WIDTHS[form], **settings})
        ends_anyway = norm == "post" and form is PyTorchEngine
        with torch.no_grad():
            model.output_proj.bias[model.config.eos_id] = 0.0 if ends_anyway else 2.0
        torch.manual_seed(5)  # of the sources
        return model

    return make


@pytest.fixture
def plain_beam_search(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[tuple[int, ...], float]]]:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "reference")
    from plain_beam import plain_beam_search

    return plain_beam_search
