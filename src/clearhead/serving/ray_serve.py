"""Deployment on several machines with Ray Serve: replicas of the translation service, without file translation.

    serve run clearhead.serving.ray_serve:application models=/srv/models/de-en replicas=2 cpus=4

Ray's proxies accept requests and pass each to a replica with free capacity. A replica is a process with its own models,
batches and limits, like one `clearhead serve`. It takes requests once its models are loaded and have reproduced their
golden sentences, and exits when its running requests are answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from clearhead.config import ServeConfig
from clearhead.config.settings import Settings
from clearhead.errors import ConfigError
from clearhead.runtime.installation import pip_install
from clearhead.runtime.threads import set_num_threads
from clearhead.serving.app import make_app
from clearhead.serving.batches import SECONDS_TO_END
from clearhead.serving.keys import keys_in
from clearhead.serving.log import log_to_stderr
from clearhead.serving.models import model_sources
from clearhead.serving.server import CHECK_SECONDS
from clearhead.serving.service import Service
from clearhead.serving.terms_and_memories import Resources, named_files

if TYPE_CHECKING:
    from ray.serve import Application
    from starlette.types import ASGIApp


Paths = str | list[str]


class RaySettings(Settings):
    """What is served, and on how much; files are read by every replica, so they stand at the same place everywhere."""

    models: Paths
    """As of `clearhead serve`: one, or a list."""
    replicas: PositiveInt = 1
    """How many at least."""
    max_replicas: PositiveInt | None = None
    """How many there may be while much is asked for; `replicas` if not given."""
    cpus: PositiveFloat = 1.0
    """Of a replica; so many threads translate, at least one."""
    gpus: NonNegativeFloat = 0.0
    """Of a replica."""
    device: str = "auto"
    """As of `clearhead serve`."""
    keys: str | None = None
    """File of API keys; each may ask as often of every replica."""
    terms: Paths = Field(default_factory=list)
    """As of `clearhead serve`."""
    memory: Paths = Field(default_factory=list)
    """As of `clearhead serve`."""
    cors: Paths = Field(default_factory=list)
    """As of `clearhead serve`."""
    limits: Annotated[dict[str, Any], Field(default_factory=dict)]
    """Bounds of each replica, as of `clearhead serve --set`."""


class Replica:
    """One replica of the translation service behind Ray's proxies.

    Args:
        settings: What to serve, and with which resources.
    """

    def __init__(self, settings: RaySettings) -> None:
        log_to_stderr()
        set_num_threads(max(1, int(settings.cpus)))
        keys = keys_in(None if settings.keys is None else Path(settings.keys))
        resources = Resources(
            named_files(_listed(settings.terms), "terms"), named_files(_listed(settings.memory), "memory")
        )
        config, sources = _limits(settings), model_sources(_listed(settings.models))
        # The download of a translated file may reach another replica.
        self._service = Service(sources, config, keys, resources, device=settings.device, takes_files=False)
        self._service.load()
        self._origins = tuple(_listed(settings.cors))
        self._is_over = Event()
        self._maintenance = Thread(target=self._maintain, daemon=True, name="clearhead maintenance")
        self._maintenance.start()

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the ASGI application; called by Ray."""
        return make_app(self._service, cors_origins=self._origins)

    def check_health(self) -> None:
        """Raise unless the replica serves requests; called by Ray.

        Raises:
            HTTPError: If it does not serve requests.
        """
        self._service.require_ready()

    def _maintain(self) -> None:
        while not self._is_over.wait(CHECK_SECONDS):
            self._service.check_processes()
            self._service.maintain()

    def __del__(self) -> None:
        """Release threads and files; Ray has waited for running requests before."""
        if hasattr(self, "_maintenance"):
            self._is_over.set()
            if self._maintenance is not current_thread():  # this thread may hold the last reference
                self._maintenance.join(SECONDS_TO_END)
            self._service.admission.cancel_all()
            self._service.close()


def application(given: Mapping[str, Any]) -> Application:
    """Return the Ray application for `serve run` or `ray.serve.run`.

    Args:
        given: Fields of `RaySettings`.

    Raises:
        ConfigError: If a field is unknown or invalid, or Ray is not installed.
    """
    settings = RaySettings.from_dict(dict(given), origin="clearhead.serving.ray_serve")
    config, _ = _limits(settings), model_sources(_listed(settings.models))  # their errors come before any start
    try:
        from ray import serve
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"serving on Ray needs the package {error.name}, which is not installed: {pip_install('ray')}"
        ) from None
    scaling: dict[str, Any] = {"num_replicas": settings.replicas}
    if settings.max_replicas is not None:
        bounds = {"min_replicas": settings.replicas, "max_replicas": max(settings.replicas, settings.max_replicas)}
        scaling = {"autoscaling_config": {**bounds, "target_ongoing_requests": max(1, config.max_requests // 2)}}
    deploy: Any = serve.deployment  # its type annotations do not state what it returns
    deployment = deploy(
        serve.ingress()(Replica),
        name="clearhead",
        ray_actor_options={"num_cpus": settings.cpus, "num_gpus": settings.gpus},
        max_ongoing_requests=config.max_requests,
        max_queued_requests=config.max_requests,
        graceful_shutdown_timeout_s=config.grace_seconds,
        **scaling,
    )
    return deployment.bind(settings)


def _limits(settings: RaySettings) -> ServeConfig:
    return ServeConfig.from_dict(settings.limits, origin="limits")


def _listed(paths: Paths) -> list[str]:
    return [paths] if isinstance(paths, str) else paths
