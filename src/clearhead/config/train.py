"""`[train]`: settings of optimisation (paper section 5), run length, validation, checkpoints and fine-tuning."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from clearhead.config.choices import Optimizer, OwnPart, Schedule, Tracker, TrainPrecision
from clearhead.config.settings import Bytes, Items, Probability, Rate, Seed, Settings, SmallNumber, Tokens

MOST_STEPS = 1_000_000_000
"""Maximum number of optimiser steps of a run."""

Steps = Annotated[PositiveInt, Field(le=MOST_STEPS)]
Minutes = Annotated[PositiveFloat, Field(le=10_000_000.0)]
Rank = Annotated[NonNegativeInt, Field(le=1_000_000)]
Points = Annotated[NonNegativeFloat, Field(le=100.0)]
NonNegativeRate = Annotated[NonNegativeFloat, Field(le=1e9)]


class TrainConfig(Settings):
    """`[train]`: optimisation, length of training, validation and checkpoints."""

    batch_tokens: Tokens = 25_000
    """Target tokens per optimiser step (paper section 5.1: about 25,000 target tokens and as many source tokens)."""
    micro_batch_tokens: Tokens = 8_192
    """Target tokens computed at once, padding included. A larger step is computed in several parts by gradient
    accumulation. The gradient is the same, and on a CPU so is the dropout."""
    max_memory: Bytes | None = None
    """Memory budget of each training process, such as `6GB`: on a CPU of the whole process, as estimated; on a GPU of
    PyTorch there. `micro_batch_tokens` is halved until the largest part of a step fits; what cannot fit is refused."""
    accumulate: Items = 1
    """Minimum number of parts into which every step is cut, even if it has few tokens. Set it to the number of workers,
    and one worker computes the same parts as they do. One worker and two workers then make bit-identical steps; more
    workers add the parts in another order."""
    shard: bool = False
    """With several workers, split weights, gradients and moments among them (FSDP2), for models that do not fit on one
    device. The weights of a layer are gathered while the layer is computed; all weights are gathered for validation."""
    max_steps: Steps | None = None
    """Maximum number of optimiser steps. If neither this nor `max_minutes` is set, training runs for 30 passes over the
    corpus, at most 100,000 steps. With `data.corrections` it runs for 10 passes over them, even if `max_minutes` would
    allow more."""
    max_minutes: Minutes | None = None
    """Maximum training time in minutes, including data preparation and the time before each resumption; no limit if not
    set."""
    optimizer: Optimizer = "adam"
    """`adam`: Adam as in section 5.3 of the paper. `adamw`: Adam with decoupled weight decay. `muon`: Muon for the
    matrices inside layers (Jordan et al. 2024), Adam for all other weights. Muon multiplies its matrices in bfloat16 if
    the device supports it and `precision` is not fp32."""
    adam_betas: tuple[Probability, Probability] = (0.9, 0.98)
    """Decay rates of the two moment estimates (paper section 5.3)."""
    adam_eps: SmallNumber = 1e-9
    """Constant that keeps the division in Adam numerically stable (paper section 5.3)."""
    weight_decay: NonNegativeRate = 0.0
    """Decoupled weight decay per unit of learning rate, applied to matrices only; not used by `adam`."""
    learning_rate: Rate | None = None
    """Peak learning rate; if not set, the peak of the schedule in section 5.3: (d_model * warmup_steps) ** -0.5."""
    warmup_steps: Steps = 4_000
    """Optimiser steps of linear warm-up (paper section 5.3)."""
    schedule: Schedule = "noam"
    """Learning rate after warm-up. `noam`: falls with the inverse square root of the step (equation 3). `linear`,
    `cosine`: fall to zero at the end of training, as set by `max_steps` or `max_minutes`, whichever is reached first.
    `constant`: stays at the peak."""
    label_smoothing: Probability = 0.1
    """Probability mass spread over the vocabulary (paper section 5.4)."""
    guided_alignment_weight: Rate = 0.05
    """Weight of the guided-alignment loss, which is added to the translation loss: the cross-entropy between
    `data.alignments` and the attention of the guided head (Garg et al. 2019: 0.05; docs/alignment.md)."""
    guided_alignment_layer: Rank | None = None
    """Decoder layer of the guided head, counted from 0; the first head of the layer is used. If not set, the last layer
    but one (Garg et al. 2019)."""
    clip_norm: NonNegativeRate = 1.0
    """Maximum norm of the gradient of a step; 0 disables clipping."""
    precision: TrainPrecision = "auto"
    """Precision of the model's matrix products. `auto` is bf16 if the hardware supports it (GPUs; CPUs with AMX or
    AVX-512 BF16), otherwise fp32. All other operations are fp32 on a CPU, and follow torch.autocast on a GPU. A CPU
    without bf16 instructions computes in fp32 even if bf16 is set."""
    compile: Literal["auto"] | bool = "auto"
    """Compile the training step with torch.compile: the first step takes up to minutes, later steps are faster. `auto`
    compiles packed batches on a GPU (docs/scaling.md), and nothing on a CPU."""
    validate_every: Steps = 500
    """Optimiser steps between validations. A validation computes the loss of all validation pairs, and BLEU and chrF of
    greedy translations."""
    validate_sentences: Items = 1_000
    """Validation pairs to translate for BLEU and chrF, from the start of the validation set."""
    checkpoint_every: Steps = 500
    """Optimiser steps between checkpoints."""
    checkpoint_minutes: Minutes = 10.0
    """Maximum minutes between checkpoints, even if `checkpoint_every` steps have not been made."""
    keep_checkpoints: Items = 5
    """Number of newest checkpoints to keep, at least `average_last`. The checkpoint with the best validation result is
    kept as well."""
    average_last: Items = 5
    """Number of checkpoints to average at the end (paper section 6.1: 5 for base, 20 for big). The average is used only
    if its validation result is better."""
    patience: Steps = 10
    """Early stopping: training ends after this many validations in a row in which neither chrF nor likelihood
    improved."""
    general_margin: Points = 1.0
    """Points of chrF on general text (`data.general_pairs`) that the model may lose in comparison with the model that
    the run started from. If it loses more, the run reports it. The original model is kept in any case."""
    freeze: tuple[str, ...] = ()
    """Parts whose weights are not trained: `embeddings`, `encoder`, `decoder`, or a layer such as `encoder.layers.0`.
    Requires `--from`. A matrix shared by embeddings and output counts as `embeddings`."""
    lora_rank: Rank = 0
    """Rank of LoRA adapters (Hu et al. 2021); 0 is none. The matrices inside layers are trained through the adapters,
    and all other weights are frozen. The change of each matrix is the product of two thin matrices, which is merged
    into it at every step. Requires `--from` and the optimizer `adam`."""
    lora_alpha: Rate = 16.0
    """Scale of the LoRA adapters: their product is multiplied by `lora_alpha / lora_rank`."""
    deterministic: bool = False
    """On a GPU, use deterministic algorithms alone, so that a resumed run on the same GPU and software is meant to be
    the same bit for bit. It is slower. A CPU always computes the same."""
    track: Tracker | None = None
    """Tracker that also gets the training log and the settings: Trackio, MLflow or Weights & Biases (an extra of the
    same name; docs/recipes.md). Without an environment variable of the tracker's own, all stays on this machine."""
    seed: Seed = 1
    """Random seed of initialisation, batch order and dropout."""
    plain: bool = False
    """Run the readable code alone, so that a change of it counts (docs/architecture.md); much slower.

    Training runs the forward pass of `Transformer`, `label_smoothed_cross_entropy` of all logits, PyTorch's dropout,
    fp32, and in validation `greedy_search`."""
    own_parts: tuple[OwnPart, ...] = ()
    """Parts of the run that are given in Python (`clearhead.train(config, model=..., loss=...)`), whose code is not in
    the run. The run writes this list."""
    planned: tuple[str, ...] = ()
    """Settings that the run chose itself when it started, such as `model.dropout`, because the user did not set them. A
    resumed run keeps them; a run that starts over chooses them again. The run writes this list; a value given here is
    ignored."""

    @model_validator(mode="after")
    def _adam_moves_adapters(self) -> Self:
        if self.lora_rank and self.optimizer != "adam":
            raise ValueError(
                f"train.lora_rank has adapters moved by Adam, so train.optimizer must be 'adam', not {self.optimizer!r}"
            )
        return self

    @model_validator(mode="after")
    def _shards_go_with(self) -> Self:
        for name in ("lora_rank", "compile"):
            if self.shard and getattr(self, name) not in (False, "auto"):
                raise ValueError(f"train.shard and train.{name} do not go together; leave one of them out")
        return self

    @model_validator(mode="after")
    def _plain_code_goes_with(self) -> Self:
        for name, is_set in {
            "compile = true": self.compile is True,
            "shard = true": self.shard,
            "precision = 'bf16'": self.precision == "bf16",
        }.items():
            if self.plain and is_set:
                raise ValueError(f"train.plain runs the readable code alone, in fp32; leave out train.{name}")
        return self

    @model_validator(mode="after")
    def _schedule_has_an_end(self) -> Self:
        if self.schedule in ("linear", "cosine") and self.max_steps is None and self.max_minutes is None:
            raise ValueError(
                f"train.schedule = {self.schedule!r} falls to zero at the end of training, so it needs "
                f"train.max_steps or train.max_minutes; schedules without an end: 'noam', 'constant'"
            )
        return self
