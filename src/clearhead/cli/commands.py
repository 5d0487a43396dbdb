"""The commands by name, in the order of the help page; each is imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

Name = Literal[
    "demo",
    "plan",
    "train",
    "translate",
    "review",
    "score",
    "evaluate",
    "explain",
    "backtranslate",
    "distill",
    "optimize",
    "average",
    "info",
    "runs",
    "verify",
    "export",
    "serve",
    "paper",
    "import",
    "api-key",
]
NAMES: tuple[Name, ...] = get_args(Name)


def function_of(name: Name) -> Callable[..., None]:
    """Return the function of a command."""
    function: Callable[..., None]
    match name:
        case "demo":
            from clearhead.cli.demo import demo as function
        case "plan":
            from clearhead.cli.plan import plan as function
        case "train":
            from clearhead.cli.train import train as function
        case "translate":
            from clearhead.cli.translate import translate as function
        case "review":
            from clearhead.cli.review import review as function
        case "score":
            from clearhead.cli.score import score as function
        case "evaluate":
            from clearhead.cli.evaluate import evaluate as function
        case "explain":
            from clearhead.cli.explain import explain as function
        case "backtranslate":
            from clearhead.cli.synthesize import backtranslate as function
        case "distill":
            from clearhead.cli.synthesize import distill as function
        case "optimize":
            from clearhead.cli.optimize import optimize as function
        case "average":
            from clearhead.cli.average import average as function
        case "info":
            from clearhead.cli.info import info as function
        case "runs":
            from clearhead.cli.runs import runs as function
        case "verify":
            from clearhead.cli.verify import verify as function
        case "export":
            from clearhead.cli.export import export as function
        case "serve":
            from clearhead.cli.serve import serve as function
        case "paper":
            from clearhead.cli.paper import paper as function
        case "import":
            from clearhead.cli.import_model import import_model as function
        case "api-key":
            from clearhead.cli.serve import api_key as function
    return function
