"""Charts of sweeps: what a cell says, what is hatched, what a line and its band are made of."""

import numpy as np

from mta_viz.analysis.labs.needle import needle_score
from mta_viz.analysis.labs.sweep_file import accuracy_table
from mta_viz.exporting.pictures import printable
from mta_viz.plots.labs import accuracy_lines, accuracy_map, score_words

HALF, ALL = needle_score([True, False]), needle_score([True] * 4)


def test_a_cell_has_share_interval_and_samples_and_missing_ones_are_hatched():
    figure = accuracy_map({(0, 512): HALF, (100, 512): ALL}, (0, 50, 100), (512, 1024), "<model>")
    cells = figure.data[0]
    assert np.array_equal(np.array(cells.z, float)[:, 0], [0.5, np.nan, 1.0], equal_nan=True)
    assert (cells.zmin, cells.zmax) == (0, 1)
    assert cells.text[0][0] == "0.50<br>[0.01, 0.99] n=2" and cells.text[1][0] == ""
    assert figure.layout.yaxis.ticktext == ("0 %", "50 %", "100 %")
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]  # depth grows downwards
    hatched = figure.data[1]
    assert hatched.fillpattern.shape == "/" and np.isnan(hatched.x).sum() == 4  # of six cells
    assert "&lt;model&gt;" in str(figure.layout.annotations)


def test_a_line_goes_through_the_shares_and_its_band_through_the_intervals():
    figure = accuracy_lines({"one": {2: ALL, 4: HALF}, "twin": {2: HALF}}, (2, 4, 6), "title")
    band, line, _, other = figure.data
    assert list(line.x) == [2, 4] and list(line.y) == [1.0, 0.5]
    assert list(band.x) == [2, 4, 4, 2]
    assert list(band.y) == [ALL.interval[0], HALF.interval[0], HALF.interval[1], ALL.interval[1]]
    assert line.line.color != other.line.color and line.line.dash != other.line.dash
    assert figure.layout.xaxis.ticktext == ("2", "4", "6")
    assert line.text[1].endswith(score_words(HALF))


def test_on_white_paper_the_legend_hides_nothing_of_the_plots_frame():
    saved = printable(accuracy_lines({"one": {2: ALL}}, (2, 4), "title"))
    assert saved.layout.paper_bgcolor == "white" and saved.layout.legend.bgcolor == "rgba(0,0,0,0)"


def test_the_table_has_a_line_a_model_and_setting():
    lines = accuracy_table({"one": {(2, 512, 0): HALF}, "twin": {(2, 512, 12.5): ALL}}).csv().splitlines()
    assert lines[0] == "model,needles,length,depth,right,n,accuracy,low,high"
    assert lines[1].startswith("one,2,512,0,1,2,0.5,0.0125791171") and lines[2].startswith(
        "twin,2,512,12.5,4,4,1"
    )
