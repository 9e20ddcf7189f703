"""Train: kernels put into a plain model and trained, beside the app, from a form."""

from mta_viz.ui.shell.open_page import open_page

with open_page("Train") as page:
    from mta_viz.ui.train.view import draw_train  # after opening: it imports the model's libraries

    draw_train(page)
