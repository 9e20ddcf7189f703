"""Surgery: what happens to the answer and the maps when kernels, mixing or heads are changed."""

from mta_viz.ui.shell.open_page import open_page

with open_page("Surgery", needs_run=True, plan="own") as page:
    from mta_viz.ui.surgery.view import draw_surgery  # after opening: it imports the model's libraries

    draw_surgery(page)
