"""Write the pages that come from the code: `python docs/generate.py` renews commands.md, errata.md and settings.md.

A test fails when they are stale.
"""

from __future__ import annotations

from pathlib import Path

import typer
from pydantic import BaseModel

from clearhead.cli.main import app
from clearhead.config import Config
from clearhead.paper.errata import errata_page

__all__ = ["PAGES", "commands_page", "settings_page"]


def settings_page() -> str:
    """Return the page of every setting with its type, default and meaning."""
    lines = [
        "# Settings",
        "",
        "Generated from `src/clearhead/config/`. Write them in a TOML file, or give them as "
        "`--set section.key=value`. Where a default is *none*, the meaning says what comes in its place; what is "
        "chosen when a run starts stands in the run's `config.toml`.",
    ]
    top = {name: field for name, field in Config.model_fields.items() if not _is_section(field.annotation)}
    lines += ["", "## Top level", "", *_table(top)]
    for name, field in Config.model_fields.items():
        if _is_section(field.annotation):
            section = field.annotation
            assert isinstance(section, type)
            lines += ["", f"## [{name}]", "", *_table(section.model_fields)]
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """Return the page of every command with its arguments and options."""
    group = typer.main.get_command(app)
    lines = ["# Commands", "", "Generated from `src/clearhead/cli/`; `clearhead COMMAND --help` says the same."]
    context = group.make_context("clearhead", [], resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        lines += ["", f"## clearhead {name}", "", " ".join((command.help or "").split()), "", "| | |", "| --- | --- |"]
        for parameter in command.params:
            if parameter.name == "help":
                continue
            is_option = parameter.param_type_name == "option"
            label = ", ".join(parameter.opts) if is_option else (parameter.metavar or parameter.name.upper())
            lines.append(f"| `{label}` | {_cell(parameter.help or '')} |")
    return "\n".join(lines) + "\n"


PAGES = {"commands.md": commands_page, "errata.md": errata_page, "settings.md": settings_page}


def _is_section(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _table(fields: dict[str, object]) -> list[str]:
    rows = ["| setting | default | meaning |", "| --- | --- | --- |"]
    for name, field in fields.items():
        default = "*none*" if field.default is None else f"`{field.default!r}`"
        rows.append(f"| `{name}` | {default} | {_cell(field.description or '')} |")
    return rows


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    for name, page in PAGES.items():
        (Path(__file__).parent / name).write_text(page(), encoding="utf-8")
