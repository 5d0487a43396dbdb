"""`clearhead serve`: models over HTTP; and `clearhead api-key`, which makes a key for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from clearhead.cli.options import Device, Threads
from clearhead.errors import ConfigError

DEMO = "runs/demo"


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL",
            help="Model directories or run directories. NAME=PATH names one; a name such as de-en tells its languages, "
            "where the model does not know them.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 or :: lets other machines ask.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 is any free one.")] = 5_000,
    demo: Annotated[bool, typer.Option("--demo", help=f"Serve {DEMO}, which `clearhead demo` trained.")] = False,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="API keys that may ask, as `clearhead api-key` writes them; without it everybody may.",
            show_default=False,
        ),
    ] = None,
    terms: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE.tsv",
            help="Terminology that translations must use (docs/terms.md). NAME=FILE is for the model or the languages "
            "of that name, such as de-en, or with another name for requests that ask for it; several may be given.",
            show_default=False,
        ),
    ] = None,
    memory: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Translation memory whose translations of equal lines are reused, a .tmx or any other file of pairs; "
            "NAME=FILE is for the model or the languages of that name.",
            show_default=False,
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Let pages of this origin ask, such as https://example.org; once for each. * is all.",
            show_default="none",
        ),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Take who asks from X-Forwarded-For, where this address asks; once for each.",
            show_default="none",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A limit (docs/settings.md), such as max_requests=200.",
            show_default=False,
        ),
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Serve models over HTTP: translations, scores, explanations, files; LibreTranslate's clients can ask too.

    Requests of all clients share a batch, and each gets what `clearhead translate` gives. It is ready when every model
    is loaded and has translated its golden sentences as it did when it was made. SIGTERM ends it when its requests are
    done; SIGHUP reads models and keys anew, as happens by itself when they are replaced.
    """
    from clearhead.config import ServeConfig
    from clearhead.serving.models import model_sources

    paths = [*(models or []), *([f"demo={DEMO}"] if demo else [])]
    if not paths:
        raise ConfigError("name a model to serve, such as runs/de-en; or --demo, after `clearhead demo`")
    if demo and not Path(DEMO).exists():
        raise ConfigError(f"there is no {DEMO} to serve; train it with `clearhead demo`")
    config = ServeConfig.from_dict(_values(settings or []), origin="--set")
    sources = model_sources(paths)
    try:
        from clearhead.serving.keys import keys_in
        from clearhead.serving.search_process import begin_search_process, can_search_apart
        from clearhead.serving.server import bind, log_to_stderr
        from clearhead.serving.server import serve as run
        from clearhead.serving.service import Service
        from clearhead.serving.terms_and_memories import Resources, named_files
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "clearhead":
            raise
        raise ConfigError(
            f"serving needs the package {error.name}, which is not installed: pip install 'clearhead[serve]'"
        ) from None
    from clearhead.bundle import model_directory
    from clearhead.runtime.device import resolve_device

    for source in sources:
        model_directory(source.path)  # refused before the port is taken
    resources = Resources(named_files(terms or [], "--terms"), named_files(memory or [], "--memory"))
    read = keys_in(keys)
    is_apart = can_search_apart(resolve_device(device))
    log_to_stderr(with_libraries=True)  # in the process that searches as well
    process = begin_search_process(config.max_batch, config.max_searches) if is_apart else None
    service = Service(sources, config, read, resources, device=device, search_process=process)
    run(service, bind(host, port), cors_origins=tuple(cors or ()), trusted_proxies=tuple(proxy or ()))


def api_key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is: letters, digits, _, . and -.")],
    keys: Annotated[Path, typer.Option(metavar="FILE", help="File of keys that it is added to.")],
    requests_per_minute: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="How many requests it may ask for, on average and at once.")
    ] = 600,
) -> None:
    """Make an API key for `clearhead serve --keys`, and print it: the file has its hash alone."""
    from clearhead.serving.keys import add_key

    typer.echo(add_key(keys, name, requests_per_minute))


def _values(given: list[str]) -> dict[str, Any]:
    values = {}
    for one in given:
        name, is_set, value = one.partition("=")
        if not is_set:
            raise ConfigError(f"--set {one}: write NAME=VALUE, such as max_requests=200")
        values[name.strip()] = value.strip()
    return values
