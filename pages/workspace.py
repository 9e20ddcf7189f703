"""Workspace: a prompt, a head and its kernel: what it attends to, why, and what a change of it does."""

from mta_viz.ui.shell.open_page import open_page

with open_page("Workspace", needs_run=True, plan="own") as page:
    from mta_viz.ui.workspace.view import draw_workspace  # after opening: it imports the model's libraries

    draw_workspace(page)
