"""`clearhead serve`: serve models over HTTP; `clearhead api-key`: create, list and revoke its API keys."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.console import drop_output, notice
from clearhead.cli.options import MEMORY_FILE, Device, OptionGroup, Threads, with_option_groups
from clearhead.cli.rules import refuse_clashes
from clearhead.errors import ConfigError, DataError
from clearhead.runtime.installation import pip_install

if TYPE_CHECKING:
    from clearhead.config import ServeConfig
    from clearhead.serving.terms_and_memories import Resources

DEMO = "runs/demo"


class ListenOptions(OptionGroup):
    """Where a server listens."""

    host: str = typer.Option(
        "127.0.0.1", help="Address to listen on; 0.0.0.0 or :: accepts requests from other machines."
    )
    port: int = typer.Option(5_000, min=0, max=65_535, help="Port to listen on; 0 chooses a free one.")


class AddressOptions(ListenOptions):
    """Where the server listens, and to whom."""

    cors: list[str] | None = typer.Option(
        None,
        metavar="ORIGIN",
        help="Allow cross-origin requests from web pages of this origin, such as https://example.org; * allows "
        "all. May be repeated.",
        show_default="none",
    )
    hosts: list[str] | None = typer.Option(
        None,
        metavar="NAME",
        help="Name in web addresses under which the server is asked, such as translate.example.org; other names "
        "are refused, and * allows all. May be repeated.",
        show_default="this machine's own, if it listens there alone; otherwise all",
    )
    proxy: list[str] | None = typer.Option(
        None,
        metavar="ADDRESS",
        help="Address of a trusted proxy: for its requests the client address is taken from X-Forwarded-For. May "
        "be repeated.",
        show_default="none",
    )


class ResourceOptions(OptionGroup):
    """Keys, terms, memories, suggestions and reviews of the server."""

    keys: Path | None = typer.Option(
        None,
        metavar="FILE",
        help="File of API keys, as written by `clearhead api-key`; requests need one of them. Without this "
        "option no key is needed.",
    )
    terms: list[str] | None = typer.Option(
        None,
        metavar="FILE.tsv",
        help="Terminology that translations must use (docs/terms.md); may be repeated. NAME=FILE applies to the "
        "model or language pair of that name, such as de-en; with any other name it applies to requests "
        "that name it.",
    )
    memory: list[str] | None = typer.Option(
        None,
        metavar="FILE",
        help=f"Translation memory: {MEMORY_FILE}. Translations of identical lines are reused, and those of similar "
        "lines are consulted by the model (docs/terms.md). NAME=FILE applies to the model or language pair of that "
        "name.",
    )
    suggestions: list[str] | None = typer.Option(
        None,
        metavar="FILE.tmx",
        help="File to which translations are added that users suggest (`/suggest`); use it as a --memory after a "
        "review. NAME=FILE applies to the model or language pair of that name.",
        show_default="suggestions are refused",
    )
    reviews: Path | None = typer.Option(
        None,
        metavar="DIR",
        help="Directory of the reviews that users of the page begin of translated files and texts; made if it is "
        "missing. Reviews stay there until you remove them.",
        show_default="translations are not reviewed",
    )


@with_option_groups
def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL",
            help="Model directories or run directories. NAME=PATH gives a model a name; a name such as de-en also "
            "sets its languages, if the model does not define them.",
        ),
    ] = None,
    *,
    address: AddressOptions,
    demo: Annotated[bool, typer.Option("--demo", help=f"Serve {DEMO}, the model of `clearhead demo`.")] = False,
    files: ResourceOptions,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Change a limit (docs/settings.md), such as max_requests=200."
        ),
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Serve models over HTTP: translation, scoring, explanations and files; compatible with LibreTranslate clients.

    Examples:
      clearhead serve runs/de-en
      clearhead serve runs/de-en runs/fr-en --port 8000
      clearhead serve runs/de-en --keys keys.jsonl --terms terms.tsv

    Requests of all clients are batched together, and the results are those of `clearhead translate`. The server is
    ready when every model is loaded and its translations of its golden sentences are unchanged. After SIGTERM it
    finishes the running requests and exits. SIGHUP reloads models and keys; they are also reloaded automatically when
    their files are replaced.
    """
    paths = _paths(models or [], demo=demo)
    require_packages("serving")

    from clearhead.bundle.model_directory import model_directory
    from clearhead.config import ServeConfig
    from clearhead.runtime.device import resolve_device, return_freed_memory
    from clearhead.serving.kept_reviews import KeptReviews
    from clearhead.serving.keys import keys_in
    from clearhead.serving.log import log_to_stderr
    from clearhead.serving.models import model_sources
    from clearhead.serving.search_process import SearchProcesses, can_use_search_process
    from clearhead.serving.server import bind
    from clearhead.serving.server import serve as run
    from clearhead.serving.service import Service

    config = ServeConfig.from_dict(_values(settings or []), origin="--set")
    sources = model_sources(paths)
    for source in sources:
        model_directory(source.path)  # refused before the port is taken
    resources = _resources(files, config)
    read = keys_in(files.keys)
    reviews = None if files.reviews is None else KeptReviews(files.reviews, config)
    is_apart = can_use_search_process(resolve_device(device))
    log_to_stderr(with_libraries=True)  # in the process that searches as well
    processes = SearchProcesses(config.max_batch, config.max_searches) if is_apart else None
    if is_apart:
        return_freed_memory()  # unlike the process that searches
    service = Service(sources, config, read, resources, device=device, search_processes=processes, reviews=reviews)
    run(
        service,
        bind(address.host, address.port),
        cors_origins=address.cors or (),
        hosts=address.hosts or (),
        trusted_proxies=address.proxy or (),
    )


def _resources(files: ResourceOptions, config: ServeConfig) -> Resources:
    """Return the terms, memories and suggestions of the server."""
    from clearhead.serving.terms_and_memories import Resources, named_files

    return Resources(
        named_files(files.terms or [], "--terms"),
        named_files(files.memory or [], "--memory"),
        named_files(files.suggestions or [], "--suggestions"),
        max_suggestions=config.max_suggestions,
    )


def _paths(models: list[str], *, demo: bool) -> list[str]:
    """Return the models to serve.

    Raises:
        ConfigError: If there are none.
    """
    paths = [*models, *([f"demo={DEMO}"] if demo else [])]
    if not paths:
        raise ConfigError("name a model to serve, such as runs/de-en; or --demo, after `clearhead demo`")
    if demo and not Path(DEMO).exists():
        raise ConfigError(f"there is no {DEMO} to serve; train it with `clearhead demo`")
    return paths


def require_packages(what: str) -> None:
    """Make sure that the packages of the extra `serve` are installed.

    Args:
        what: What needs them.

    Raises:
        ConfigError: Naming one that is not.
    """
    try:
        import clearhead.serving.server
        import clearhead.serving.service  # noqa: F401
        from clearhead.text.languages import english_name

        english_name("en")  # imports Babel
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "clearhead":
            raise
        raise ConfigError(
            f"{what} needs the package {package}, which is not installed: {pip_install('serve')}"
        ) from None


def api_key(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the key's owner: letters, digits, _, . and -.")
    ] = None,
    *,
    keys: Annotated[Path, typer.Option(metavar="FILE", help="File of keys.")],
    requests_per_minute: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Maximum requests per minute on average, and the maximum burst.")
    ] = 600,
    list_keys: Annotated[
        bool, typer.Option("--list", help="Print the names of all keys and their requests per minute.")
    ] = False,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Remove the key of NAME; a running server refuses it within two seconds.")
    ] = False,
) -> None:
    """Create an API key for `clearhead serve --keys` and print it, list the keys of a file, or revoke one.

    Examples:
      clearhead api-key anna --keys keys.jsonl --requests-per-minute 60
      clearhead api-key --list --keys keys.jsonl
      clearhead api-key anna --revoke --keys keys.jsonl

    The file stores only the hash of a key. Several commands may change it at once.
    """
    refuse_clashes(context)

    from clearhead.serving.keys import add_key, read_keys, revoke_key

    if name is None:
        for key in read_keys(keys).values():
            typer.echo(f"{key.name}\t{key.requests_per_minute}")
    elif revoke:
        revoke_key(keys, name)
        notice(f"revoked the key of {name} in {keys}")
    else:
        add_key(keys, name, requests_per_minute, _print)


def _print(key: str) -> None:
    """Print a key, which nobody can ask for again.

    Raises:
        DataError: If the reader of standard output has gone, which is no error of other commands.
    """
    try:
        typer.echo(key)
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output(sys.stdout)
        raise DataError("no key was created, because nothing reads standard output") from None


def _values(given: list[str]) -> dict[str, Any]:
    values = {}
    for setting in given:
        name, is_set, value = setting.partition("=")
        if not is_set:
            raise ConfigError(f"--set {setting}: write NAME=VALUE, such as max_requests=200")
        values[name.strip()] = value.strip()
    return values
