"""What every page shares: frame, sidebar, selection, address, work beside the page, saving."""
