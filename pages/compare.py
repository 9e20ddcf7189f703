"""Compare: two models, two prompts, or a model with and without edits, side by side."""

from mta_viz.ui.shell.open_page import open_page

with open_page("Compare", needs_run=True, plan="own") as page:
    from mta_viz.ui.compare.view import draw_compare  # after opening: it imports the model's libraries

    draw_compare(page)
