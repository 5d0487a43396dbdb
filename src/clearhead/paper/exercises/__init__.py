"""Forty exercises on the paper: functions with a blank, each with a check that names known mistakes."""

from clearhead.paper.exercises.catalogue import EXERCISES, exercise
from clearhead.paper.exercises.checking import Verdict, check, solution
from clearhead.paper.exercises.exercise import Exercise

__all__ = ["EXERCISES", "Exercise", "Verdict", "check", "exercise", "solution"]
