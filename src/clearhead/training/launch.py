"""Start several workers on this machine with PyTorch's launcher (`torchrun`)."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from tempfile import TemporaryDirectory

import torch
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from clearhead.errors import TrainingError
from clearhead.runtime.threads import usable_cpus
from clearhead.training.distributed import SPEAKS

_SECONDS_BETWEEN_LOOKS = 0.2


def usual_workers(device: str | None) -> int:
    """Return the default number of workers: one for each GPU, or one on a CPU.

    On a CPU, two processes of one thread each are slower than one process of two threads (docs/scaling.md).

    Args:
        device: Value of `Config.device`; None if it is not set.
    """
    return max(1, torch.cuda.device_count()) if device in (None, "auto", "cuda") else 1


def launch(arguments: Sequence[str], count: int) -> None:
    """Run the command in `count` processes, and return when all have finished.

    Args:
        arguments: Command-line arguments of `clearhead`.
        count: Number of processes. They share the CPUs.

    Raises:
        TrainingError: If a worker was killed.
        SystemExit: With the exit status of a worker that failed, which has printed why; or 130 or 143 after a signal.
    """
    before = dict(os.environ)
    os.environ[SPEAKS] = "1"
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, usable_cpus() // count)))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    logging.disable()  # silence the launcher's own log; errors are reported below
    try:
        with TemporaryDirectory(prefix="clearhead-workers-") as logs:  # otherwise the launcher leaves one behind
            config = LaunchConfig(
                min_nodes=1,
                max_nodes=1,
                nproc_per_node=count,
                rdzv_backend="c10d",
                rdzv_endpoint="localhost:0",
                run_id="clearhead",
                max_restarts=0,
                monitor_interval=_SECONDS_BETWEEN_LOOKS,
                logs_specs=DefaultLogsSpecs(log_dir=logs),
            )
            elastic_launch(config, sys.executable)("-m", "clearhead", *arguments)
    except ChildFailedError as error:
        killed = [(rank, failure) for rank, failure in error.failures.items() if failure.exitcode < 0]
        if not killed:  # a worker that failed has printed why
            raise SystemExit(error.get_first_failure()[1].exitcode) from None
        rank, failure = killed[0]  # the killed worker, not one that lost contact and reported nothing
        name = signal.Signals(-failure.exitcode).name
        raise TrainingError(
            f"worker {rank} was ended by {name}; the others were stopped, and the same command continues from the last "
            f"checkpoint"
        ) from None
    except SignalException as error:
        raise SystemExit(128 + error.sigval) from None
    finally:
        logging.disable(logging.NOTSET)
        os.environ.clear()
        os.environ.update(before)
