"""All topics of the grammar, in a fixed order."""

from mta_viz.tasks.grammar import topics_country, topics_town
from mta_viz.tasks.grammar.topic import Topic

TOPICS: tuple[Topic, ...] = tuple(
    value
    for module in (topics_town, topics_country)
    for value in vars(module).values()
    if isinstance(value, Topic)
)
