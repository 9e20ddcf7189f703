"""Figures of the labs: of one sample, of many; a prompt's story.

A story as one figure: question x asked words before a kernel, the kernel, the same after it.
"""

from dataclasses import dataclass
from typing import Any

from mta_viz.analysis.attention.maps import AttentionMap, exact_map, shared_limit
from mta_viz.analysis.cause.effects import Absent
from mta_viz.analysis.cause.story import BY, RULE, Story, story_of
from mta_viz.analysis.kernels.kernels import layer_kernels
from mta_viz.analysis.labs.finder import StepCrop, region, step_crops
from mta_viz.figures.base import NamedFigure, Source, named
from mta_viz.figures.labs import measured as measured
from mta_viz.figures.labs.samples import CROP_PX, crop_limit, crop_picture
from mta_viz.model.stages import Stage
from mta_viz.plots.attention.maps import SMALL, attention_map
from mta_viz.plots.kernels.card import kernel_picture
from mta_viz.plots.parts import side_by_side
from mta_viz.plots.theme import Figure, limit_text
from mta_viz.tables import Table

KERNEL_PX = 440
SHARES = (
    "What the head gives is of the last token's row: the sum of sizes over the span, over that of the row; "
    "before the softmax what it would be if the softmax came there."
)
ODDS = (
    "Without the kernel: its own tap alone is left, everything after it is computed anew. Log-odds are "
    "log(p / (1 - p)) of the whole answer, in nats; its rank is the largest of its tokens' ranks."
)


@dataclass(frozen=True)
class StoryCrops:
    """A story with the maps it is about: both sides of the kernel, or (a plain model's) the final one."""

    story: Story
    crop: StepCrop | None = None
    final: AttentionMap | None = None

    @property
    def maps(self) -> tuple[AttentionMap, ...]:
        """Those that are drawn."""
        sides = () if self.crop is None else (self.crop.before, self.crop.after)
        return sides if self.final is None else (self.final,)


@named("story")
class StoryFigure(NamedFigure[StoryCrops]):
    """Question x asked words before the story's kernel, the kernel, and the same cells after it.

    `answer`: None as of `mta_viz.story`. The model beside the source, if any, is the plain twin.
    """

    answer: str | None = None

    def result(self, source: Source) -> StoryCrops:
        """Raises as `mta_viz.story` does."""
        run, twin = source.trace, None if source.beside is None else source.beside.model
        opening = story_of(run, answer=self.answer, twin=twin, progress=source.progress)
        if opening.place is None or opening.asked is None:
            return StoryCrops(opening)
        shown, place = region(opening.asking, opening.asked, len(opening.tokens)), opening.place
        if opening.kernel is None:
            rows, columns = (slice(side.start, side.stop) for side in (shown.queries, shown.keys))
            return StoryCrops(opening, final=exact_map(run, place[0], Stage.PATTERN, place[1], rows, columns))
        crops: dict[str, StepCrop] = {crop.place: crop for crop in step_crops(run, shown, *place)}
        return StoryCrops(opening, crops[opening.kernel.where])

    def draw(self, source: Source, result: StoryCrops) -> Figure | None:
        """Three panels, of a plain model one; none where the last token sees no other key."""
        title, tokens = result.story.sentence(source.numbering), result.story.tokens
        if result.final is not None:
            spans = (result.story.asking, result.story.asked)
            look: dict[str, Any] = {
                "numbering": source.numbering,
                "size": CROP_PX,
                "spans": spans,
                "look": SMALL,
            }
            picture = attention_map(result.final, tokens, limit=shared_limit([result.final]), **look)
            return side_by_side([picture], title)
        if result.crop is None:
            return None
        limit = crop_limit(result.crop, "after")
        before, after = (
            crop_picture(result.crop, side, tokens, limit=limit, numbering=source.numbering)
            for side in ("before", "after")
        )
        return side_by_side([before, self._kernel(source, result.story), after], title)

    def _kernel(self, source: Source, opening: Story) -> Figure:
        kernel, model = opening.kernel, source.model
        assert kernel is not None
        taps, offsets = layer_kernels(model.state_dict(), model.config, kernel.layer).taps(kernel.where)
        own = taps[kernel.head].double().numpy()
        return kernel_picture(own, offsets, title="its kernel", width=KERNEL_PX)

    def table(self, source: Source, result: StoryCrops) -> Table:
        """A row a cell of every map; without maps a row for each state of the answer."""
        tables = [shown.table(result.story.tokens) for shown in result.maps]
        if not tables:
            return result.story.table()
        return Table(tables[0].columns, tuple(row for table in tables for row in table.rows))

    def caption(self, source: Source, result: StoryCrops) -> str:
        """The sentence, what is drawn, and every definition."""
        opening = result.story
        words = [opening.sentence(source.numbering), f"The answer is {opening.answer_words}."]
        if not isinstance(opening.twin, Absent):
            words.append(f"{opening.twin_words}.")
        if result.crop is not None:
            limit = limit_text(crop_limit(result.crop, "after"))
            words.append(
                "Left to right: the head's map before the convolution, the kernel (its own tap framed), the "
                f"map after it, on one scale to {limit}, of the asked cells."
            )
        if result.maps:
            words += ["Rows are queries, columns keys; hatched: masked.", SHARES]
        if opening.kernel is not None:
            words.append(ODDS)
        return " ".join([*words, f"Chosen: {BY[opening.by]}.", RULE])

    def file_parts(self) -> tuple[object, ...]:
        return (self.name,)
