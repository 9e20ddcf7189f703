"""A kernel rounded to the template it fits best: the own tap stays, the others keep what lies along it."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

from mta_viz.analysis.kernels import Offsets
from mta_viz.analysis.shapes.measures import without_own_tap
from mta_viz.analysis.shapes.templates import library, size_words, template_scores, unit_templates
from mta_viz.errors import ConfigError


def round_to_template(taps: Float[Array, "c_q c_k"], offsets: Offsets) -> tuple[str, Float[Array, "c_q c_k"]]:
    """(name, taps) of the template with the largest |score|, at the size that is nearest to the kernel.

    Raises ConfigError for a kernel too small for any template, or one with no tap besides its own.
    """
    kernel = np.asarray(taps, float)[None]
    scores = template_scores(kernel, offsets)[0]
    if not scores.size or not np.abs(scores).max() > 0:
        why = (
            f"a {size_words(*kernel.shape[1:])} kernel has no room for any template"
            if not scores.size
            else "the kernel has no tap besides its own, so no template is nearest"
        )
        raise ConfigError([why], subject="Rounding to a template")
    best = int(np.abs(scores).argmax())
    rest, unit = without_own_tap(kernel, offsets).ravel(), unit_templates(offsets)[best]
    rounded = (float(rest @ unit) * unit).reshape(kernel.shape[1:])
    rounded[offsets.own] = kernel[0][offsets.own]
    return library(offsets)[best].called(float(scores[best])), rounded
