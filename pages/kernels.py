"""Kernels: the key-query kernels and head-mixing matrices of a layer, all heads side by side."""

from mta_viz.ui.shell.open_page import open_page

with open_page("Kernels") as page:
    from mta_viz.ui.kernels.view import draw_kernels  # after opening: it imports the model's libraries

    draw_kernels(page)
