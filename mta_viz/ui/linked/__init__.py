"""A map and the prompt as text that answer the pointer in the browser: what is sent, and the two components.

The view (view.js) is sent the cells once for each map; the pointer (pointer.js), which draws nothing, stands
where the chosen cell is drawn, tells the view which it is, and the server which one a visitor chose. They
talk by events of the document whose names end in the view's.
"""
