"""`train RECIPE ...`: train a checkpoint; the answer is its model card."""

from argparse import Namespace
from typing import Any


def run(arguments: Namespace) -> dict[str, Any]:
    """Hand over to the recipe, which the parser has put into `arguments.recipe`."""
    return arguments.recipe(arguments)
