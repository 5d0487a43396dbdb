"""Options of commands that are settings: name, type, default and words of each are those of its field in `config/`.

Bounds are checked with the section (`Settings`), whose message names every problem at once.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from typer.models import OptionInfo

import clearhead.config
from clearhead.config.words import SECTIONS, words

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


class SettingOption(OptionInfo):
    """An option that sets a setting."""

    setting: str
    sets: bool
    """What the option sets, if it has no value."""

    @property
    def kind(self) -> Any:
        """The type of the option on a command line: a setting is text there if it has no other form."""
        kinds = [kind for kind in _parts(_field(self.setting).annotation) if kind is not type(None)]
        match kinds:
            case [kind] if kind in (bool, int, float) or get_origin(kind) is Literal:
                return kind
            case [kind] if get_args(kind) == (str, ...):
                return list[str]
            case _:
                return str

    @property
    def unset(self) -> bool | None:
        """The value of the option if it is not given."""
        return False if self.kind is bool else None

    def value(self, given: Any) -> Any:
        """Return the value of the setting; None if it is not given."""
        return (self.sets if given else None) if self.kind is bool else given


def option(setting: str, *flags: str, more: str = "", sets: bool = True, **named: Any) -> Any:
    """Return the option for a setting.

    Args:
        setting: Section and key, such as `decode.beam_size`.
        flags: Names of the option; the key if not given.
        more: What holds for this option alone, after the words of the setting.
        sets: For a setting that is on or off: what the option sets.
        **named: Arguments of `typer.Option`, such as `metavar`.
    """
    section, _, key = setting.rpartition(".")
    said = words(setting) if sets else f"Do not {words(setting)[0].lower()}{words(setting)[1:]}"
    match section:
        case "decode":
            named = {"show_default": "the model's", **named}
        case "sampling":
            named = {"show_default": str(_field(setting).default), **named}
    names = flags or (f"--{key.replace('_', '-')}",)
    made = SettingOption(default=..., param_decls=names, help=f"{said} {more}".rstrip(), **named)
    made.setting, made.sets = setting, sets
    return made


def _field(setting: str) -> FieldInfo:
    section, _, key = setting.rpartition(".")
    fields: dict[str, FieldInfo] = getattr(clearhead.config, SECTIONS[section].partition(":")[2]).model_fields
    return fields[key]


def _parts(annotation: Any) -> list[Any]:
    """Return the types of a union, without their bounds."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for member in get_args(annotation) for part in _parts(member)]
    return [annotation]
