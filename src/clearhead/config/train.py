"""`[train]`: how the model is trained (paper section 5)."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from clearhead.config.choices import Optimizer, Schedule, TrainPrecision
from clearhead.config.settings import Items, Probability, Rate, Seed, Settings, SmallNumber, Tokens

MOST_STEPS = 1_000_000_000
"""Most optimiser steps of a run."""

Steps = Annotated[PositiveInt, Field(le=MOST_STEPS)]
Minutes = Annotated[PositiveFloat, Field(le=10_000_000.0)]
Rank = Annotated[NonNegativeInt, Field(le=1_000_000)]
Points = Annotated[NonNegativeFloat, Field(le=100.0)]
NonNegativeRate = Annotated[NonNegativeFloat, Field(le=1e9)]


class TrainConfig(Settings):
    """`[train]`: optimisation, how long it runs and what it keeps."""

    batch_tokens: Tokens = 25_000
    """Target tokens per optimiser step (paper section 5.1: about as many, and 25,000 source tokens)."""
    micro_batch_tokens: Tokens = 8_192
    """Target tokens computed at once, padding included; a larger step is accumulated from several parts. The gradient
    is the same, and on a CPU the dropout as well."""
    accumulate: Items = 1
    """Parts at least that every step is cut into, however few tokens it has. As many workers compute the same parts;
    two of them make the same steps bit for bit, more add in another order."""
    shard: bool = False
    """With several workers, keep a share of the weights, gradients and moments in each (FSDP2), for models that one
    device cannot hold with them; layers come together while they are computed, and all weights for validation."""
    max_steps: Steps | None = None
    """Optimiser steps after which training ends; if neither this nor `max_minutes` is set, those of 30 passes over the
    corpus, 100,000 at most."""
    max_minutes: Minutes | None = None
    """Minutes after which training ends, counted over all resumed parts and with data preparation; no limit if not
    set."""
    optimizer: Optimizer = "adam"
    """Adam as in section 5.3; with decoupled weight decay; or Muon for the matrices inside layers (Jordan et al. 2024)
    and Adam for the rest. Muon's own products are in bfloat16 where the device has them, unless `precision` is fp32."""
    adam_betas: tuple[Probability, Probability] = (0.9, 0.98)
    """Decay of the two moment estimates (paper section 5.3)."""
    adam_eps: SmallNumber = 1e-9
    """Keeps the division stable (paper section 5.3)."""
    weight_decay: NonNegativeRate = 0.0
    """Decoupled weight decay per unit of learning rate, of matrices only; `adam` has none."""
    learning_rate: Rate | None = None
    """Peak rate; if not set, what the schedule of section 5.3 peaks at: (d_model * warmup_steps) ** -0.5."""
    warmup_steps: Steps = 4_000
    """Optimiser steps of linear warm-up (paper section 5.3)."""
    schedule: Schedule = "noam"
    """After warm-up: `noam` falls with the inverse square root of the step (equation 3), `linear` and `cosine` fall
    to zero at the end given by max_steps or max_minutes, of both the nearer one; `constant` stays."""
    label_smoothing: Probability = 0.1
    """Probability mass spread over the vocabulary (paper section 5.4)."""
    guided_alignment_weight: Rate = 0.05
    """Weight of the cross-entropy between the links of `data.alignments` and the attention of the head that learns
    them, beside that of the translation (Garg et al. 2019: 0.05; docs/alignment.md)."""
    guided_alignment_layer: Rank | None = None
    """Decoder layer, counted from 0, whose first head that is; the last but one if not set, as there."""
    clip_norm: NonNegativeRate = 1.0
    """Largest norm of the gradient of one step; 0 leaves it as it is."""
    precision: TrainPrecision = "auto"
    """Precision of the model's matrix products; `auto` is bf16 where the hardware has it (GPUs; CPUs with AMX or
    AVX-512 BF16), fp32 elsewhere. All else stays fp32 on a CPU; on a GPU it is what torch.autocast makes of it. A CPU
    without these instructions computes in fp32 where bf16 is asked for."""
    compile: bool = False
    """Compile the model with torch.compile; the first steps take minutes, the later ones less time."""
    validate_every: Steps = 500
    """Optimiser steps between validations (loss of all pairs, BLEU and chrF of greedy translations)."""
    validate_sentences: Items = 1_000
    """Validation pairs translated for BLEU and chrF, from the start of the set."""
    checkpoint_every: Steps = 500
    """Optimiser steps between checkpoints."""
    checkpoint_minutes: Minutes = 10.0
    """Minutes after which a checkpoint is written even where `checkpoint_every` asks for none."""
    keep_checkpoints: Items = 5
    """Newest checkpoints kept, at least as many as `average_last`; the best by validation is kept as well."""
    average_last: Items = 5
    """Checkpoints averaged at the end (paper section 6.1: 5 for base, 20 for big); used if validation prefers it."""
    patience: Steps = 10
    """Validations in a row that better neither chrF nor likelihood, after which training ends."""
    general_margin: Points = 1.0
    """Points of chrF that general text (`data.general_pairs`) may lose beside the model that the run started from; a
    run whose model lost more says so. The older model stays beside it in any case."""
    freeze: tuple[str, ...] = ()
    """Parts whose weights stay as they are: `embeddings`, `encoder`, `decoder`, or a layer, such as
    `encoder.layers.0`; for a run that starts from a model. A matrix that embeddings and output share is of the
    embeddings."""
    lora_rank: Rank = 0
    """Rank of the adapters that move in the place of the matrices inside layers, all else being frozen (LoRA, Hu et al.
    2021): each matrix changes by the product of two thin ones, merged into it at every step. 0 is none; for a run that
    starts from a model. Adam moves them."""
    lora_alpha: Rate = 16.0
    """The adapters' product is multiplied by this over `lora_rank`."""
    seed: Seed = 1
    """Seed of initialisation, batch order and dropout."""
    planned: tuple[str, ...] = ()
    """Settings that were chosen when the run began, such as `model.dropout`, not set by anybody: a run that goes on
    keeps them, and one that starts over chooses anew. It is found, whatever is written here."""

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
            if self.shard and getattr(self, name):
                raise ValueError(f"train.shard and train.{name} do not go together; leave one of them out")
        return self

    @model_validator(mode="after")
    def _schedule_has_an_end(self) -> Self:
        if self.schedule in ("linear", "cosine") and self.max_steps is None and self.max_minutes is None:
            raise ValueError(
                f"train.schedule = {self.schedule!r} falls to zero at the end of training, so it needs "
                f"train.max_steps or train.max_minutes; schedules without an end: 'noam', 'constant'"
            )
        return self
