"""How it works: the steps of multi-token attention on the visitor's own numbers, and a kernel to paint."""

from mta_viz.ui.shell.open_page import open_page

with open_page("How it works", needs_run=True) as page:
    from mta_viz.ui.how.view import draw_how  # after opening: it imports the model's libraries

    draw_how(page)
