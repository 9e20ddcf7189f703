"""Labs: set up a task with a known answer, run it, see where the model looked and how often it is right."""

from mta_viz.ui.shell.open_page import open_page

with open_page("Labs") as page:
    from mta_viz.ui.labs.view import draw_labs  # after opening: it imports the model's libraries

    draw_labs(page)
