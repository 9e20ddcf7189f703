"""Maps and the prompt as text that answer the pointer in the browser: what is sent, and the components.

The text (text.js) is sent the cells once for each set of maps, and the maps (maps.js) share them (shared.js);
the pointer (pointer.js), which draws nothing, stands where the chosen cell is drawn, tells both which it is,
and the server which one a visitor chose. They talk by events of the document whose names end in the view's.
"""
