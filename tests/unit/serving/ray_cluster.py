"""A Ray of one CPU on this machine that serves models, for a test: a process of its own, told by its standard input.

    python ray_cluster.py DIRECTORY PORT '{"models": ".."}'

It prints `ready`, removes the application at a first line, and ends all of it at the end of its input.
"""

from __future__ import annotations

import json
import os
import sys
import time

# Nothing is told to the makers of Ray, and no token is kept in the home directory. A busy machine may take long.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
os.environ |= {"RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60", "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60"}

import ray
from ray import serve

from clearhead.serving.ray_serve import application


def main(directory: str, port: str, given: str) -> None:
    """Serve until told otherwise."""
    quiet = {"include_dashboard": False, "logging_level": "ERROR"}
    here = {"_temp_dir": directory, "_node_ip_address": "127.0.0.1"}
    ray.init(address="local", num_cpus=1, object_store_memory=80_000_000, **quiet, **here)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": int(port)})
        serve.run(application(json.loads(given)), name="translation")
        print("ready", flush=True)
        if sys.stdin.readline():
            serve.delete("translation", _blocking=False)  # otherwise it gives up after a minute
            while "translation" in serve.status().applications:
                time.sleep(0.1)
            print("deleted", flush=True)
            sys.stdin.read()
        serve.shutdown()
    finally:
        ray.shutdown()


main(*sys.argv[1:])
