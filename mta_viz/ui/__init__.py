"""The parts of the pages that need streamlit: state, caches, sidebar and widgets."""
