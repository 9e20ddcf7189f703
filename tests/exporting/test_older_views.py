"""A file of the version before whose view was damaged ends in a sentence, whatever is wrong with it."""

import pytest

import mta_viz
from mta_viz.errors import MtaVizError
from mta_viz.exporting.provenance import make_again, provenance_of
from mta_viz.figures import figure
from tests.tiny_models import write_models


@pytest.mark.parametrize("damage", [{"q": "x"}, {"l": ""}, {"spans": "[1"}, {"spans": "[[1, 2]]"}])
def test_a_view_that_cannot_be_read_is_refused_in_words(tmp_path, damage):
    from dataclasses import replace

    folder = write_models(tmp_path) / "tiny-mta"
    trace = mta_viz.capture(mta_viz.load(folder), "Hello, hello")
    new = provenance_of(figure("attention-map", trace, layer=1, head=2, stage="kq"))
    view = {"l": "1", "h": "2", "s": "kq", "q": "5", "k": "2"} | damage
    older = replace(new, figure="map", page="attention", view=view)
    with pytest.raises(MtaVizError, match=r"cannot be read|does not say"):
        make_again(older, folder)
