"""The kernel atlas for a notebook: a loaded model's kernels as a DataFrame."""

import pandas

from mta_viz.analysis.shapes.table import kernel_frame, kernel_table
from mta_viz.model.transformer import HookedMTA


def kernels(model: HookedMTA) -> pandas.DataFrame:
    """One row per kernel with its shape, scores and significance: see `kernel_table` for the columns.

    Scores are shares from -1 to 1, p-values from 0 to 1. A model without kernels gives no rows.

    >>> len(mta_viz.kernels(model))
    8
    """
    return kernel_frame(kernel_table(model.state_dict(), model.config))
