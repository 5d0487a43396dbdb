"""The part "formulas": a check of every equation of the paper, and figure 2 as a worked example."""

from __future__ import annotations

from clearhead.paper.equations import EQUATIONS
from clearhead.paper.parts import Check, ModelPart, check_lines, magnitude
from clearhead.paper.worked_example import worked_example


def formulas() -> ModelPart:
    """Return all equations with their measured differences, and figure 2 as a worked example."""
    differences = [(equation, equation.difference()) for equation in EQUATIONS]
    lines = ["Each is computed by our code and, independently, in plain Python loops; the largest difference is shown."]
    for equation, difference in differences:
        verdict = "ok    " if difference <= equation.tolerance else "FAILED"
        lines += [
            "",
            f"  {verdict}  {equation.place:<20}  {equation.formula}",
            f"  {'':<6}  {'':<20}  {equation.code}   largest difference {magnitude(difference)}",
        ]
    example = worked_example()
    checks = [
        Check(
            f"{equation.place} ({equation.code.partition(':')[2]})",
            difference <= equation.tolerance,
            f"largest difference {magnitude(difference)}, allowed {magnitude(equation.tolerance)}",
        )
        for equation, difference in differences
    ]
    lines += [*example.lines, "", *check_lines(example.checks)]
    return ModelPart(
        title="The equations, and figure 2 with numbers",
        text="\n".join(lines) + "\n",
        figures={"figure2-with-numbers": example.figure},
        data={
            "equations": [
                {
                    "place": equation.place,
                    "formula": equation.formula,
                    "code": equation.code,
                    "largest_difference": difference,
                    "tolerance": equation.tolerance,
                }
                for equation, difference in differences
            ]
        },
        checks=(*checks, *example.checks),
    )
