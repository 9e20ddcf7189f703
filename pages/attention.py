"""Where links to the page Attention lead now."""

from mta_viz.ui.shell.open_page import lead_on

lead_on("Attention")
