"""docs/scaling.md: its files are what their programs take, and its commands are ours."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from torch.distributed.run import get_args_parser

from clearhead.cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    every = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [text for its_kind, text in every if its_kind == kind]


def torchrun_commands() -> list[list[str]]:
    [job] = [one for one in yaml.safe_load_all(blocks("yaml")[0]) if one["kind"] == "Job"]
    [container] = job["spec"]["template"]["spec"]["containers"]
    lines = "\n".join([*blocks(""), *blocks("sh")]).replace("\\\n", " ").splitlines()
    found = [line.split("torchrun", 1)[1].split() for line in lines if "torchrun" in line]
    return [*found, [*container["command"][1:], *container["args"]]]


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="needs bash")
def test_the_batch_script_is_one_for_bash():
    [script] = blocks("sh")
    checked = subprocess.run(["/bin/bash", "-n"], input=script, text=True, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert len(re.findall(r"^#SBATCH --[a-z-]+(=\S+)?$", script, re.MULTILINE)) == script.count("#SBATCH") == 6


def test_the_pods_of_the_job_find_each_other():
    service, job = yaml.safe_load_all(blocks("yaml")[0])
    assert (service["kind"], job["kind"]) == ("Service", "Job")
    pod = job["spec"]["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"] == service["spec"]["selector"]["job-name"]
    assert job["metadata"]["name"] == service["spec"]["selector"]["job-name"]
    assert job["spec"]["completions"] == job["spec"]["parallelism"]
    [endpoint] = [one for one in pod["containers"][0]["args"] if one.startswith("--rdzv-endpoint=")]
    assert endpoint == f"--rdzv-endpoint={job['metadata']['name']}-0.{pod['subdomain']}:29400"
    mounted = {one["name"] for one in pod["containers"][0]["volumeMounts"]}
    assert mounted == {one["name"] for one in pod["volumes"]}


@pytest.mark.parametrize("command", torchrun_commands(), ids=["torchrun", "SLURM", "Kubernetes"])
def test_torchrun_takes_every_option(command):
    options = get_args_parser().parse_args([word.replace('"$SLURM_NNODES"', "2") for word in command])
    assert (options.training_script, options.training_script_args[0]) == ("clearhead", "train")
    assert options.module
    assert options.nnodes == "2"
    assert options.nproc_per_node == "8"


def test_the_commands_take_workers():
    assert app.registered_commands
    for line in "\n".join(blocks("")).splitlines():
        if line.startswith(("clearhead train", "clearhead translate")):
            assert "--workers" in line or "--ray" in line
