"""The workspace: one page on which model, prompt, head and cell stay while what is asked of them changes.

Text, maps around the kernel, an inspector, and views of the same selection by question. What the views draw
belongs to `attention`, `surgery` and `compare`.
"""
