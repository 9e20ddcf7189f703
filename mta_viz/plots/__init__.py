"""Results -> plotly figures. Computes no attention and knows nothing of streamlit."""
