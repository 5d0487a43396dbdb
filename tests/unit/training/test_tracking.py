"""The training log at Trackio, MLflow and Weights & Biases.

The clients are stand-ins with the signatures of the real ones (trackio 0.27, mlflow 3, wandb 0.21), which write what
they are called with into a file.
"""

from __future__ import annotations

import json
import sys
import time
from threading import Event

import pytest

from clearhead.errors import ConfigError
from clearhead.files import read_json
from clearhead.training import tracking
from clearhead.training.log import read_metrics
from clearhead.training.run import train_from_values
from small_runs import QUICK, assert_same_weights, tiny_settings, write_numbers

NOTE = """
import json, os, sys
from pathlib import Path

def note(name, /, **values):
    if os.environ.get("FAILS_AT") == name:
        raise ConnectionError("no answer\\nfrom there")
    with (Path(__file__).parent / "calls.jsonl").open("a") as file:
        file.write(json.dumps([name, values]) + "\\n")
"""
CLIENTS = {
    "trackio": """
def init(project, name=None, group=None, space_id=None, server_url=None, space_storage=None, dataset_id=None,
         bucket_id=None, config=None, resume="never", settings=None, private=None, embed=True, auto_log_gpu=None,
         gpu_log_interval=10.0, webhook_url=None, webhook_min_level=None):
    print("* Trackio project initialized")
    note("init", project=project, id=name, config=config, resume=resume, embed=embed,
         online=os.environ.get("HF_HUB_OFFLINE") != "1")
    return Run()

class Run:
    def log(self, metrics, step=None):
        note("log", values=metrics, step=step)

    def finish(self):
        note("finish")
""",
    "mlflow": """
from types import SimpleNamespace
from mlflow.entities import Metric, Param

class MlflowClient:
    def __init__(self, tracking_uri=None, registry_uri=None):
        note("client", uri=tracking_uri, telemetry=os.environ.get("MLFLOW_DISABLE_TELEMETRY") != "true")

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name, artifact_location=None, tags=None):
        note("experiment", name=name)
        return "17"

    def create_run(self, experiment_id, start_time=None, tags=None, run_name=None):
        note("init", experiment=experiment_id, name=run_name)
        return SimpleNamespace(info=SimpleNamespace(run_id="9a8b"))

    def update_run(self, run_id, status=None, name=None):
        note("init", id=run_id, status=status)

    def log_batch(self, run_id, metrics=(), params=(), tags=(), synchronous=None):
        assert len(params) <= 100
        assert all(isinstance(metric, Metric) for metric in metrics)
        if params:
            note("params", id=run_id, values={param.key: param.value for param in params})
        else:
            [step] = {metric.step for metric in metrics}
            note("log", id=run_id, values={metric.key: metric.value for metric in metrics}, step=step)

    def set_terminated(self, run_id, status=None, end_time=None):
        note("finish", id=run_id, status=status)
""",
    "wandb": """
def init(entity=None, project=None, dir=None, id=None, name=None, notes=None, tags=None, config=None,
         config_exclude_keys=None, config_include_keys=None, allow_val_change=None, group=None, job_type=None,
         mode=None, force=None, reinit=None, resume=None, resume_from=None, fork_from=None, save_code=None,
         tensorboard=None, sync_tensorboard=None, monitor_gym=None, settings=None):
    note("init", project=project, id=id, name=name, config=config, mode=mode, resume=resume)
    return Run()

class Run:
    def define_metric(self, name, step_metric=None, step_sync=None, hidden=None, summary=None, goal=None,
                      overwrite=None):
        note("metric", name=name, step=step_metric)

    def log(self, data, step=None, commit=None):
        note("log", values={name: value for name, value in data.items() if name != "step"}, step=data["step"])

    def finish(self, exit_code=None, quiet=None):
        note("finish", status=exit_code)
""",
}
ENTITIES = """
class Param:
    def __init__(self, key, value):
        self.key, self.value = key, value
        assert isinstance(value, str)

class Metric:
    def __init__(self, key, value, timestamp, step, model_id=None, dataset_name=None, dataset_digest=None, run_id=None):
        self.key, self.value, self.step = key, value, step
        assert isinstance(timestamp, int) and timestamp > 1_000_000_000_000
"""
SAME = {"schedule": "constant", "optimizer": "adam"}
ENVIRONMENT = ("WANDB_MODE", "WANDB_PROJECT", "WANDB_ERROR_REPORTING", "HF_HUB_OFFLINE", "TRACKIO_SPACE_ID")
ENVIRONMENT += ("TRACKIO_SERVER_URL", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_DISABLE_TELEMETRY")


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """Plant the clients, and return a function that returns the calls of one and forgets them."""
    for name, text in CLIENTS.items():
        package = tmp_path / "clients" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(NOTE + text, encoding="utf-8")
        for module in (name, f"{name}.entities"):
            monkeypatch.delitem(sys.modules, module, raising=False)
    (tmp_path / "clients" / "mlflow" / "entities.py").write_text(ENTITIES, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "clients")
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, "1")  # so that it is restored
        monkeypatch.delenv(name)

    def taken(name):
        path = tmp_path / "clients" / name / "calls.jsonl"
        found = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
        path.unlink(missing_ok=True)
        return found

    yield taken
    for name in CLIENTS:
        for module in (name, f"{name}.entities"):
            sys.modules.pop(module, None)


@pytest.fixture
def settings(tmp_path):
    """Return a function that returns settings of a run of four steps, which do not depend on the number of steps."""
    write_numbers(tmp_path / "numbers.tsv")

    def of(name, **train):
        return tiny_settings(tmp_path, {"out": str(tmp_path / name), "train": {**QUICK, **SAME, **train}})

    return of


def logged(calls):
    return [(values["step"], values["values"]) for name, values in calls if name == "log"]


def records(run):
    """Return the numbers of the log of a run as trackers get them."""
    return [
        (
            record["step"],
            {
                f"{record['split']}/{name}": value
                for name, value in record.items()
                if name not in ("split", "step", "measured_on")
            },
        )
        for record in read_metrics(run / "metrics.jsonl")
    ]


@pytest.mark.parametrize("name", CLIENTS)
def test_a_resumed_run_continues_its_tracked_run_and_trains_as_one_without(settings, calls, name, capsys):
    plain = train_from_values(settings("plain", max_steps=8)).run
    first = train_from_values(settings("tracked", track=name))
    assert not first.was_finished
    before = calls(name)
    assert logged(before) == records(first.run)
    [begun] = [values for call, values in before if call == "init"]
    identifier = read_json(first.run / tracking.TRACKED_FILE, ConfigError)[name]
    assert before[-1][0] == "finish"
    assert before[-1][1].get("status", 0) in (0, "FINISHED")
    resumed = train_from_values(settings("tracked", track=name, max_steps=8)).run
    after = calls(name)
    [continued] = [values for call, values in after if call == "init"]
    assert continued["id"] == identifier
    assert begun.get("id", identifier) == identifier
    assert logged(before) + logged(after) == records(resumed)
    assert_same_weights(resumed / "checkpoints" / "step-00000008", plain / "checkpoints" / "step-00000008")
    given = {**begun.get("config", {}), **next((values["values"] for call, values in before if call == "params"), {})}
    assert str(given["train.batch_tokens"]) == "128"
    assert capsys.readouterr().out == ""  # what clients print goes beside the output of the command


def test_a_network_is_used_only_with_a_variable_of_the_tracker(settings, calls, monkeypatch):
    train_from_values(settings("a", track="wandb"))
    [begun] = [values for call, values in calls("wandb") if call == "init"]
    assert (begun["mode"], begun["resume"], begun["project"]) == ("offline", None, "clearhead")
    train_from_values(settings("b", track="trackio"))
    [begun] = [values for call, values in calls("trackio") if call == "init"]
    assert (begun["online"], begun["resume"], begun["embed"]) == (False, "allow", False)
    train_from_values(settings("c", track="mlflow"))
    assert calls("mlflow")[0] == ["client", {"uri": None, "telemetry": False}]
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_PROJECT", "other")
    train_from_values(settings("d", track="wandb"))
    [begun] = [values for call, values in calls("wandb") if call == "init"]
    assert (begun["mode"], begun["resume"], begun["project"]) == ("online", "allow", "other")


@pytest.mark.parametrize("place", ["init", "log", "finish"])
def test_a_tracker_that_fails_is_reported_once_and_changes_nothing(settings, calls, monkeypatch, capsys, place):
    plain = train_from_values(settings("plain")).run
    monkeypatch.setenv("FAILS_AT", place)
    run = train_from_values(settings("tracked", track="wandb")).run
    told = [line for line in capsys.readouterr().err.splitlines() if "tracked" in line and "wandb" in line]
    assert told == [
        "the run is no longer tracked by wandb, and continues without it: ConnectionError: no answer from there"
    ]
    assert [record["step"] for record in read_metrics(run / "metrics.jsonl")] == [4]
    assert_same_weights(run / "model", plain / "model")


def test_a_damaged_identifier_is_reported_and_not_replaced(settings, calls, capsys):
    run = train_from_values(settings("tracked", track="trackio")).run
    (run / tracking.TRACKED_FILE).write_text("{", encoding="utf-8")
    calls("trackio")
    assert train_from_values(settings("tracked", track="trackio", max_steps=6)).step == 6
    assert "continues without it: CheckpointError: " in capsys.readouterr().err
    assert (run / tracking.TRACKED_FILE).read_text(encoding="utf-8") == "{"
    assert calls("trackio") == []


def test_a_client_that_hangs_is_not_waited_for(tmp_path, monkeypatch, settings, calls):
    released = []

    def log(values, step):
        while not released:
            time.sleep(0.01)

    monkeypatch.setattr(tracking, "_started", lambda *_: tracking._TrackedRun("1", log, lambda _: None))
    monkeypatch.setattr(tracking, "_SECONDS_TO_WAIT", 0.05)
    said = []
    track = tracking.Tracking(tracking.Config.from_dict(settings("x", track="wandb")), tmp_path, said.append)
    track.log({"train/loss": 1.0}, 3)
    track.finish(is_whole=True)
    assert said == ["wandb did not answer for 0 s; it may lack the last records"]
    released.append(True)
    track._thread.join()


def test_training_begins_without_a_client_that_hangs_at_its_start(tmp_path, monkeypatch, settings, calls):
    released, sent = Event(), []

    def start(*_):
        released.wait(60)
        return tracking._TrackedRun("1", lambda values, step: sent.append((values, step)), sent.append)

    monkeypatch.setattr(tracking, "_started", start)
    monkeypatch.setattr(tracking, "_SECONDS_TO_WAIT", 0.05)
    track = tracking.Tracking(tracking.Config.from_dict(settings("x", track="wandb")), tmp_path, sent.append)
    track.log({"train/loss": 1.0}, 3)
    released.set()
    monkeypatch.setattr(tracking, "_SECONDS_TO_WAIT", 60)
    track.finish(is_whole=True)
    assert sent == [({"train/loss": 1.0}, 3), True]


def test_a_stopped_run_does_not_wait_for_a_client_that_has_not_started(tmp_path, monkeypatch, settings, calls):
    released, said = Event(), []
    monkeypatch.setattr(tracking, "_started", lambda *_: released.wait(60))
    monkeypatch.setattr(tracking, "_SECONDS_TO_WAIT", 0.05)
    track = tracking.Tracking(tracking.Config.from_dict(settings("x", track="wandb")), tmp_path, said.append)
    monkeypatch.setattr(track._thread, "join", lambda _: pytest.fail("it waits"))
    track.finish(is_whole=False)
    assert said == ["wandb has not started, and lacks the records of this run"]
    monkeypatch.undo()
    released.set()
    track._thread.join()


def test_a_missing_client_or_an_unknown_name_is_refused_before_the_text_is_read(settings, tmp_path, monkeypatch):
    (tmp_path / "here" / "wandb").mkdir(parents=True)  # where this client keeps its runs
    monkeypatch.syspath_prepend(tmp_path / "here")
    with pytest.raises(ConfigError, match=r"train\.track = 'wandb' needs a package that is not installed: pip install"):
        train_from_values(settings("run", track="wandb"))
    with pytest.raises(ConfigError, match=r"train\.track = 'neptune': .*'trackio', 'mlflow' or 'wandb'"):
        train_from_values(settings("run", track="neptune"))
    assert not (tmp_path / "run").exists()
