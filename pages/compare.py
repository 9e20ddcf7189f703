"""Where links to the page Compare lead now."""

from mta_viz.ui.shell.open_page import lead_on

lead_on("Compare")
