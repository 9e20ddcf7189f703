"""Attention: what one head attends to on this prompt, at every stage of its computation."""

from mta_viz.ui.shell.open_page import open_page

with open_page("Attention", needs_run=True, plan="shown") as page:
    from mta_viz.ui.attention.view import draw_attention  # after opening: it imports the model's libraries

    draw_attention(page)
