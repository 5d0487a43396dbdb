"""Send the training log to Trackio, MLflow or Weights & Biases, by their own clients.

Training waits half a minute for a client at its start and at its end, and does not depend on it: a thread calls the
client, and the first error ends the tracking with one line. Nothing reaches a network unless an environment variable of
the client says so.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, NamedTuple, assert_never
from uuid import uuid4

from clearhead.config import Config
from clearhead.config.choices import Tracker
from clearhead.config.nested import flat
from clearhead.errors import CheckpointError, ConfigError
from clearhead.files import read_json, write_json
from clearhead.runtime.installation import pip_install

TRACKED_FILE = "tracked.json"
"""File of a run directory with the identifier of the tracked run at each tracker."""

_PROJECT = "clearhead"
_SECONDS_TO_WAIT = 30.0
"""Maximum seconds that the start of a run, and its end, wait for a client."""
_MOST_PARAMETERS, _LONGEST_PARAMETER = 100, 500
"""Parameters that MLflow accepts at once, and their characters."""

Settings = Mapping[str, Any]


class _TrackedRun(NamedTuple):
    """A run of a client."""

    identifier: str
    log: Callable[[Mapping[str, float], int], object]
    """Logs numbers of a step by name."""
    finish: Callable[[bool], object]
    """Ends the tracked run; it is told whether the training ended by itself."""


def require_client(tracker: Tracker | None) -> None:
    """Require that the client of a tracker is installed.

    Raises:
        ConfigError: If it is not.
    """
    spec = None if tracker is None else find_spec(tracker)
    if tracker is not None and (spec is None or spec.origin is None):  # a directory `wandb` of runs is no client
        raise ConfigError(f"train.track = {tracker!r} needs a package that is not installed: {pip_install(tracker)}")


class Tracking:
    """The tracked run of a training run.

    Args:
        config: Complete settings; `train.track` names the tracker.
        run: Run directory. A resumed run continues its tracked run.
        say: Called with one line if something fails.
    """

    def __init__(self, config: Config, run: Path, say: Callable[[str], None]) -> None:
        self._tracker, self._say = config.train.track, say
        self._records: SimpleQueue[tuple[Mapping[str, float], int] | bool] = SimpleQueue()
        self._thread: Thread | None = None
        self._is_started = Event()
        if self._tracker is not None:
            given = self._tracker, run, flat(config.model_dump(mode="json"))
            self._thread = Thread(target=self._send, args=given, name="tracking", daemon=True)
            with redirect_stdout(sys.stderr):
                self._thread.start()
                self._is_started.wait(_SECONDS_TO_WAIT)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Send numbers of a step by name."""
        if self._thread is not None:
            self._records.put((values, step))

    def finish(self, *, is_whole: bool) -> None:
        """End the tracked run, and wait until all is sent, at most half a minute.

        A client that has not started is not waited for when the training was stopped.

        Args:
            is_whole: Whether the training ended by itself.
        """
        if self._thread is not None:
            self._records.put(is_whole)
            if not is_whole and not self._is_started.is_set():
                self._say(f"{self._tracker} has not started, and lacks the records of this run")
                return
            with redirect_stdout(sys.stderr):
                self._thread.join(_SECONDS_TO_WAIT)
            if self._thread.is_alive():
                self._say(f"{self._tracker} did not answer for {_SECONDS_TO_WAIT:.0f} s; it may lack the last records")

    def _send(self, tracker: Tracker, run: Path, settings: Settings) -> None:
        try:
            tracked = _started(tracker, run, settings)
            self._is_started.set()
            while not isinstance(record := self._records.get(), bool):
                tracked.log(*record)
            tracked.finish(record)
        except (Exception, SystemExit) as error:
            self._report(error)
        finally:
            self._is_started.set()

    def _report(self, error: BaseException) -> None:
        problem = " ".join(f"{type(error).__name__}: {error}".split())
        self._say(f"the run is no longer tracked by {self._tracker}, and continues without it: {problem:.300}")


def _started(tracker: Tracker, run: Path, settings: Settings) -> _TrackedRun:
    """Start or continue the tracked run of a run directory."""
    path = run / TRACKED_FILE
    known: dict[str, str] = read_json(path, CheckpointError) if path.exists() else {}
    match tracker:
        case "trackio":
            tracked = _in_trackio(run.name, settings, known.get(tracker))
        case "mlflow":
            tracked = _in_mlflow(run.name, settings, known.get(tracker))
        case "wandb":
            tracked = _in_wandb(run.name, settings, known.get(tracker))
        case _:
            assert_never(tracker)
    write_json(path, {**known, tracker: tracked.identifier})
    return tracked


def _in_trackio(name: str, settings: Settings, known: str | None) -> _TrackedRun:
    if not {"TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"} & os.environ.keys():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # otherwise it asks Hugging Face who is logged in
    import trackio

    identifier = known or f"{name}-{uuid4().hex[:8]}"
    run = trackio.init(_PROJECT, name=identifier, config=dict(settings), resume="allow", embed=False)
    return _TrackedRun(identifier, lambda values, step: run.log(dict(values), step=step), lambda _: run.finish())


def _in_mlflow(name: str, settings: Settings, known: str | None) -> _TrackedRun:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    client = MlflowClient()  # of MLFLOW_TRACKING_URI, otherwise of files in the current directory
    if known is None:
        project = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        found = client.get_experiment_by_name(project)
        experiment = client.create_experiment(project) if found is None else found.experiment_id
        known = str(client.create_run(experiment, run_name=name).info.run_id)
        parameters = [Param(key, str(value)[:_LONGEST_PARAMETER]) for key, value in settings.items()]
        for start in range(0, len(parameters), _MOST_PARAMETERS):
            client.log_batch(known, params=parameters[start : start + _MOST_PARAMETERS])
    else:
        client.update_run(known, status="RUNNING")

    def log(values: Mapping[str, float], step: int) -> None:
        now = int(1_000 * time.time())
        client.log_batch(known, metrics=[Metric(key, value, now, step) for key, value in values.items()])

    return _TrackedRun(
        known, log, lambda is_whole: client.set_terminated(known, status="FINISHED" if is_whole else "KILLED")
    )


def _in_wandb(name: str, settings: Settings, known: str | None) -> _TrackedRun:
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    identifier, mode = known or uuid4().hex[:12], os.environ.get("WANDB_MODE", "offline")
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", _PROJECT),
        id=identifier,
        name=name,
        config=dict(settings),
        mode=mode,
        resume="allow" if mode == "online" else None,  # what is offline becomes one run by its identifier
        settings={"console": "off"},
    )
    run.define_metric("*", step_metric="step")  # a run that goes back has steps twice, which its own counter refuses
    return _TrackedRun(
        identifier,
        lambda values, step: run.log({**values, "step": step}),
        lambda is_whole: run.finish(exit_code=0 if is_whole else 1),
    )
