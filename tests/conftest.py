"""Fixtures of all tests: executed shape annotations, a fixed seed, real text, small models and padded batches."""

from __future__ import annotations

import atexit
import gc
import os
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
import typer.testing
from hypothesis import HealthCheck, settings
from torch import Tensor

from clearhead.config import ModelConfig
from leftovers import adopt_orphans, fail_if_left, running
from shapes import check_shapes

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from clearhead.model import Transformer

# Modules and the list of tests are 800,000 objects, and stay: until all are there no garbage is looked for, and then
# (`pytest_runtestloop`, and at the end) not among them. Each full look took half a second.
gc.disable()
gc.set_threshold(10_000)  # new objects until the next look; with 700, Python's default, there are thousands
atexit.register(gc.freeze)
# No test module has imported them yet: from here on a tensor that breaks its written shape raises.
check_shapes()
# One thread per process, also in processes that tests start: the cores are shared by the workers of pytest-xdist.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")
# No test cuts the power: waiting until each file is on the disk takes a third of a small training.
os.fsync = lambda _: None
# What a command takes is the same at every call; typer would read all signatures again, 30 ms each time.
typer.testing._get_command = cache(typer.testing._get_command)
# The same examples every time, however long a busy machine takes for one.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")
# A shell starts what it leaves in the background with Ctrl-C ignored, and every child would ignore it too.
signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED_DATA = Path(__file__).parents[1].parent / "shared" / "data"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a GPU (CUDA)"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:  # also of the process that hands out the tests, which collects none
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def nothing_left_at_all() -> Iterator[None]:
    """Fail the last test if fixtures that many tests share leave a thread, a process or a socket behind."""
    adopt_orphans()
    before = running()
    yield
    fail_if_left(before)


# It takes its first look when the fixtures that many tests share are ready, and its last before they end.
@pytest.fixture(autouse=True)
def nothing_left(nothing_left_at_all: None) -> Iterator[None]:
    """Fail the test that leaves a thread, a process or a socket behind."""
    before = running()
    yield
    fail_if_left(before)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    # Without a GPU the generator itself: `manual_seed` formats three stack traces for devices that are not there.
    seed = torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed
    seed(20170612)


@pytest.fixture(scope="session", autouse=True)
def fewer_candidates() -> Iterator[None]:
    """Choose the 8 golden sentences of a model among 12, not 48: that took a fifth of a small training."""
    from clearhead.translation import golden

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(golden, "_CANDIDATES", 12)
        yield


@pytest.fixture
def inference() -> Iterator[None]:
    """Run the test without autograd, as everything that decodes does."""
    with torch.inference_mode():
        yield


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Return the CPU, then the GPU: what a test expects of both comes from plain PyTorch in float64 on the CPU."""
    return torch.device(request.param)


@pytest.fixture(scope="session")
def data_dir() -> Callable[[str], Path]:
    """Return a function from the name of a corpus to its directory; the test is skipped where it is absent."""

    def find(name: str) -> Path:
        path = SHARED_DATA / name
        if not path.is_dir():
            pytest.skip(f"needs the corpus {name}: ../shared/data/{name} beside the repository is absent")
        return path

    return find


@pytest.fixture
def make_model() -> Callable[..., Transformer]:
    """Return a function from settings to a small model in eval mode.

    Axes are prime or, where the model demands an even width, pairwise different. Every weight is random, also the
    biases and norms that training starts at 0 and 1, so that a forgotten one shows.
    """

    from clearhead.model import Transformer

    def make(**settings: object) -> Transformer:
        sizes = {"vocab_size": 37, "d_model": 26, "num_heads": 13, "d_ff": 19, "dropout": 0.0}
        layers = {"num_encoder_layers": 3, "num_decoder_layers": 2}
        model = Transformer(ModelConfig.model_validate({**sizes, **layers, **settings}))
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.dim() == 1:
                    weight.normal_(mean=float("norm.weight" in name), std=0.3)
        return model.eval()

    return make


@pytest.fixture
def make_batch() -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a function that draws source and target ids, padded to their longest row."""

    def rows(lengths: tuple[int, ...], config: ModelConfig) -> Tensor:
        special = {config.pad_id, config.bos_id, config.eos_id}
        tokens = torch.tensor([token for token in range(config.vocab_size) if token not in special])
        ids = tokens[torch.randint(len(tokens), (len(lengths), max(lengths)))]
        for row, length in zip(ids, lengths, strict=True):
            row[length:] = config.pad_id
        return ids

    def make(
        config: ModelConfig, source: tuple[int, ...] = (11, 5, 2), target: tuple[int, ...] = (4, 7, 1)
    ) -> tuple[Tensor, Tensor]:
        shifted = rows(target, config)
        shifted[:, 0] = config.bos_id
        return rows(source, config), shifted

    return make


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return a browser; for a module alone, since its event loop would be in the way of others."""
    from browsers import opened_browser

    with opened_browser() as browser:
        yield browser
