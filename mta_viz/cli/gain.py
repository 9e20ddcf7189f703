"""`gain PATH --prompt TEXT --span 3:8`: what every kernel, and each tap, adds to a span's cells."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from mta_viz.cli.ablate import kernel_named
from mta_viz.cli.flags import add_prompt, run_prompt
from mta_viz.cli.heads import one_span
from mta_viz.errors import PromptError

if TYPE_CHECKING:
    from mta_viz.run.trace import Trace

HELP = "what every kernel, and each of its taps, adds to the cells of a span"


def add_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_prompt(parser)
    add("--span", type=one_span, metavar="3:8", help="the keys (default: the needle that is asked for)")
    add("--query", type=int, metavar="N", help="the query (default: the last token)")
    add("--kernel", type=kernel_named, metavar="NAME", help='"L3 H5 pre": each tap of this one')


def run(arguments: Namespace) -> dict[str, Any]:
    """A row a kernel, or a row a tap."""
    from mta_viz.analysis.attention.taps import all_tap_gains, gains_table, tap_gains

    trace = run_prompt(arguments)
    keys = range(*arguments.span) if arguments.span else _asked_needle(trace)
    queries = None if arguments.query is None else (arguments.query,)
    answer = {"span": [keys.start, keys.stop], "query": arguments.query}
    if arguments.kernel is None:
        return answer | {"kernels": gains_table(all_tap_gains(trace, keys, queries)).records()}
    gains = tap_gains(trace, arguments.kernel, keys, queries)
    return answer | {"kernel": arguments.kernel.name(), "gain": gains.total, "taps": gains.table().records()}


def _asked_needle(trace: "Trace") -> range:
    """Raises PromptError for prompts without one."""
    from mta_viz.analysis.attention.spans import asked_span, needle_spans

    if (span := asked_span(needle_spans(trace.tokens))) is not None:
        return span.positions
    raise PromptError("the prompt asks for no needle; say which keys are meant with --span 3:8")
