"""The curves of a finetuning: what stands where, and what is said where nothing is known."""

from dataclasses import replace

import plotly.graph_objects as go

from mta_viz.analysis.kernels.finetuning import Change, FinetuningRun, HeldOut
from mta_viz.plots import theme
from mta_viz.plots.kernels.training import finetuning_curves
from tests.figures.checked import assert_plotly_takes_it

RUNNING = FinetuningRun(
    step=40, steps=200, state="running", seconds_left=60.0, loss=((20, 3.0), (40, 2.0)),
    looks=(HeldOut(0, 1, 20), HeldOut(40, 5, 20)), before=HeldOut(0, 12, 100), after=None, change=None,
    perplexity={"grammar": (4.0, None)},
)  # fmt: skip
DONE = replace(
    RUNNING, step=200, state="done", after=HeldOut(200, 62, 100), change=Change(0.5, 0.38, 0.6),
    perplexity={"grammar": (4.0, 4.2)},
)  # fmt: skip


def answers(figure: go.Figure) -> dict[str, go.Scatter]:
    return {trace.marker.color: trace for trace in figure.data if trace.xaxis == "x2"}


def words(figure: go.Figure) -> str:
    return " ".join(note.text for note in figure.layout.annotations)


def test_the_loss_and_the_shares_stand_at_their_steps_with_intervals() -> None:
    figure = finetuning_curves(DONE)
    assert_plotly_takes_it(figure)
    assert (figure.data[0].x, figure.data[0].y) == ((20, 40), (3.0, 2.0))
    looks, base, result = (
        answers(figure)[c] for c in (theme.FRAME, theme.INCOMING_COLOR, theme.SELECTED_COLOR)
    )
    assert (looks.x, looks.y) == ((0, 40), (0.05, 0.25))
    assert (base.x, base.y, result.x, result.y) == ((0,), (0.12,), (200,), (0.62,))
    low, high = HeldOut(200, 62, 100).interval
    assert result.y[0] - result.error_y.arrayminus[0] == low
    assert result.y[0] + result.error_y.array[0] == high


def test_the_scale_of_the_loss_shows_learning_and_not_noise() -> None:
    def scale(*losses: float) -> tuple[str, tuple[float, ...] | None, str]:
        figure = finetuning_curves(replace(RUNNING, loss=tuple(enumerate(losses, 1))))
        return figure.layout.yaxis.type, figure.layout.yaxis.range, words(figure)

    kind, ends, said = scale(15.0, 4.0, 2.0, 1.9)  # the start would press the rest flat
    assert (kind, ends) == ("log", None) and "nats, log scale" in said
    kind, ends, said = scale(3.0, 2.5, 2.0)
    assert kind != "log" and "log" not in said
    assert 1.9 < ends[0] < 2.0 and 3.0 < ends[1] < 3.1
    ends = scale(7.61, 7.60, 7.615)[1]  # noise of 0.2 % fills a tenth of the height
    assert ends[1] - ends[0] > 10 * 0.015
    assert scale(0.0, 0.0)[1] is None


def test_a_run_that_goes_on_shows_how_far_it_is() -> None:
    figure = finetuning_curves(RUNNING)
    assert theme.SELECTED_COLOR not in answers(figure)
    assert figure.layout.xaxis.range[1] > 200 > figure.data[0].x[-1]
    assert finetuning_curves(replace(DONE, step=50, steps=100_000)).layout.xaxis.range[1] < 60


def test_what_is_not_known_is_said_on_the_figure() -> None:
    empty = replace(RUNNING, loss=(), looks=(), before=None)
    assert "no step reported yet" in words(finetuning_curves(empty))
    assert "no step" not in words(finetuning_curves(RUNNING))
    assert finetuning_curves(replace(RUNNING, loss=((20, 3.0),))).data[0].mode == "markers"


def test_a_task_without_answers_has_the_loss_alone_as_wide_as_the_figure() -> None:
    figure = finetuning_curves(replace(RUNNING, looks=(), before=None))
    assert_plotly_takes_it(figure)
    assert len(figure.data) == 1 and figure.layout.xaxis.domain == (0, 1)
    assert "Right answers" not in words(figure)
