"""A seeded grammar of the project's own that writes English paragraphs: the haystack that ships.

Every sentence is invented here; none is quoted from a book.
"""

from mta_viz.tasks.grammar.writer import Paragraph, paragraphs, sentences

__all__ = ["Paragraph", "paragraphs", "sentences"]
