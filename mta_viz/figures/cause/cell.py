"""What one cell of a head adds to the answer, and what the head's kernel does for it."""

from mta_viz.analysis.cause.cell_effect import CellEffect, cell_effect
from mta_viz.figures.attention.maps import OfHead
from mta_viz.figures.base import Source, named
from mta_viz.figures.cause.attribution import SourceHeads, direct_effects, meter_of
from mta_viz.plots.cause import logit_parts
from mta_viz.plots.theme import Figure, head_name
from mta_viz.tables import Table

SIZE = (900, 250)


@named("cell-to-answer", kw_only=True)
class CellToAnswer(OfHead[CellEffect]):
    """The direct effect of a softmax cell beside what else makes the logit of the answer's token.

    `answer`: None is the number the prompt asks for, else the likeliest token after the prompt.
    """

    query: int
    key: int
    answer: str | None = None

    def result(self, source: Source) -> CellEffect:
        """Raises PromptError for what is not there."""
        effects = direct_effects(source, SourceHeads(answer=self.answer), None)
        return cell_effect(effects, meter_of(source, self.answer), self.place, (self.query, self.key))

    def draw(self, source: Source, result: CellEffect) -> Figure:
        """A bar a part."""
        return logit_parts(result.parts, title=f"Logit of {result.explained}", size=SIZE)

    def table(self, source: Source, result: CellEffect) -> Table:
        """A row a part, and the answer's log-odds."""
        return result.table()

    def caption(self, source: Source, result: CellEffect) -> str:
        """What the bars are, and what is held."""
        words = (
            f"{head_name(*self.place, source.numbering)}, softmax cell of query {self.query} and key {self.key}: "
            f"its direct effect on the logit of {result.explained}, norms and gate held as the run left them, "
            "beside everything else; the bars sum to the logit."
        )
        if result.without is None:
            return words
        return (
            f"{words} Log-odds of the whole answer {result.standing.log_odds:+.2f}; with the own tap of the "
            f"head's kernel alone, everything after it computed anew, {result.without.log_odds:+.2f}."
        )
