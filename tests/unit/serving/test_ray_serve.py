"""Ray Serve: the same answers from a replica on a local Ray, which ends in order and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from clearhead.errors import ConfigError
from clearhead.runtime.installation import pip_install
from clearhead.serving.ray_serve import RaySettings, Replica, application

LINES = ["Ein kleiner Hund rennt über die Wiese.", "Zwei Männer sitzen auf einer Bank."]
LIMITS = {"max_texts": 3, "grace_seconds": 600}
"""On a busy machine the answers under way take long."""


def processes(directory):
    """Return the processes of a Ray."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if directory in line]


@pytest.fixture(scope="module")
def cluster(models, lists):
    """Return what runs a Ray, and its address; told to go on, it removes the application."""
    directory = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # the names of its sockets must be short
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given = {"models": str(models["de-en"]), "terms": f"pets={lists['terms']}", "limits": LIMITS}
    command = [sys.executable, str(Path(__file__).with_name("ray_cluster.py")), directory, str(port), json.dumps(given)]
    log = Path(directory) / "log"
    with (
        log.open("wb") as file,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True) as process,
    ):
        try:
            assert process.stdout.readline() == "ready\n", log.read_text(encoding="utf-8")
            yield process, f"http://127.0.0.1:{port}"
            process.stdin.close()
            assert process.wait(60) == 0, log.read_text(encoding="utf-8")
            until = time.monotonic() + 30
            while processes(directory) and time.monotonic() < until:
                time.sleep(0.1)
            assert processes(directory) == []
        finally:
            process.kill()
            shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.slow
def test_a_replica_answers_as_the_command_does_and_ends_in_order(cluster, models, lists, command):
    process, url = cluster
    with httpx.Client(base_url=url, timeout=60) as client:
        assert client.get("/readyz").json() == {"status": "ok"}
        body = {"text": LINES, "model": "de-en", "terms": "pets"}
        found = client.post("/v1/translate", json=body).json()["translations"]
        wanted = command(models["de-en"], "--format", "jsonl", "--terms", str(lists["terms"]), lines=LINES)
        assert found == list(map(json.loads, wanted))
        assert client.post("/translate", json={"q": LINES * 2, "source": "de", "target": "en"}).status_code == 400
        refused = client.post("/translate_file", data={"source": "de", "target": "en"}, files={"file": ("a.txt", b"a")})
        assert (refused.status_code, "disabled" in refused.json()["error"]) == (403, True)
        assert client.get("/frontend/settings").json()["filesTranslation"] is False

        # What is under way when the application is removed is answered to its end.
        streamed, is_begun = [], threading.Event()

        def ask():
            asked = {"text": "Ein Hund.\n" * 300, "model": "de-en", "stream": True}
            with httpx.stream("POST", f"{url}/v1/translate", json=asked, timeout=60) as answer:
                for line in answer.iter_lines():
                    streamed.append(line)
                    is_begun.set()

        asking = threading.Thread(target=ask)
        asking.start()
        assert is_begun.wait(60)
        process.stdin.write("end\n")
        process.stdin.flush()
        asking.join()
        assert streamed.count("event: translation") == 300
        assert "event: done" in streamed
        assert process.stdout.readline() == "deleted\n"
        assert client.get("/readyz").status_code == 404  # of the proxy, which has no application any more


def test_application_rejects_invalid_settings_and_missing_ray(monkeypatch):
    for given, message in (
        ({"model": "x"}, "unknown setting 'model'; did you mean 'models'?"),
        ({"models": "x", "replicas": 0}, "replicas"),
        ({"models": "x", "limits": {"max_request": 1}}, "unknown setting 'max_request'; did you mean 'max_requests'?"),
        ({"models": ["a=x", "a=y"]}, "two models are called 'a'"),
    ):
        with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
            application(given)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=f"serving on Ray needs the package ray, .* {re.escape(pip_install('ray'))}"):
        application({"models": "x"})


@pytest.fixture
def replica(models, lists, monkeypatch):
    """Return a replica in this process, as Ray makes one."""
    monkeypatch.setattr("clearhead.serving.ray_serve.set_num_threads", lambda count: None)
    monkeypatch.setattr("clearhead.serving.ray_serve.log_to_stderr", lambda: None)
    given = {"models": str(models["de-en"]), "terms": f"pets={lists['terms']}", "limits": LIMITS}
    replica = Replica(RaySettings(device="cpu", **given))
    yield replica
    replica.__del__()  # as Ray does; no reference may be the last, for the thread that tends it has one


def test_the_application_of_a_replica_answers_as_the_command_does(replica, models, lists, command):
    wanted = command(models["de-en"], "--format", "jsonl", "--terms", str(lists["terms"]), lines=LINES)

    async def ask():
        app = httpx.ASGITransport(replica.__serve_build_asgi_app__())
        async with httpx.AsyncClient(transport=app, base_url="http://a") as client:
            assert (await client.get("/readyz")).json() == {"status": "ok"}
            body = {"text": LINES, "model": "de-en", "terms": "pets"}
            found = (await client.post("/v1/translate", json=body)).json()["translations"]
            assert found == list(map(json.loads, wanted))
            many = await client.post("/translate", json={"q": LINES * 2, "source": "de", "target": "en"})
            assert many.status_code == 400
            assert (await client.get("/frontend/settings")).json()["filesTranslation"] is False

    asyncio.run(ask())


def test_an_application_has_the_replicas_and_bounds_that_were_asked_for(models, monkeypatch):
    class Serve:
        """What Ray gives, as far as it is asked for; it notes how."""

        def ingress(self):
            return lambda kind: kind

        def deployment(self, kind, **options):
            return SimpleNamespace(bind=lambda settings: (kind, options, settings))

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(serve=Serve()))
    given = {"models": str(models["de-en"]), "cpus": 2, "limits": {"max_requests": 8, "grace_seconds": 9}}
    for more, scaling in (
        ({"replicas": 2}, {"num_replicas": 2}),
        (
            {"max_replicas": 3},
            {"autoscaling_config": {"min_replicas": 1, "max_replicas": 3, "target_ongoing_requests": 4}},
        ),
    ):
        kind, options, settings = application({**given, **more})
        assert (kind, settings.models) == (Replica, str(models["de-en"]))
        assert options == {
            "name": "clearhead",
            "ray_actor_options": {"num_cpus": 2, "num_gpus": 0},
            "max_ongoing_requests": 8,
            "max_queued_requests": 8,
            "graceful_shutdown_timeout_s": 9,
            **scaling,
        }


def test_a_replica_tells_whether_it_serves(replica):
    replica.check_health()
    replica._service.admission.is_ending = True
    with pytest.raises(Exception, match="shutting down"):
        replica.check_health()
