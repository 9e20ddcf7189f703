"""Everything the product uses of other libraries without their promise: the one list.

A new version may change any of it. Each item has a test that fails then and says what depends on it: of
Python's side in test_undocumented.py, of scripts and styles in test_undocumented_ui.py.
"""

from dataclasses import dataclass

# (library, what is used, where)
UNDOCUMENTED = (
    ("torch", "Module._forward_hooks", "mta_viz/model/hooking.py"),
    ("torch", "Module._forward_pre_hooks", "mta_viz/model/hooking.py"),
    ("torch", "Module._backward_hooks", "mta_viz/model/hooking.py"),
    ("torch", "load says GLOBAL name of what it refuses", "mta_viz/checkpoint/lingua.py"),
    ("torch", "distributed.checkpoint's names in .metadata", "mta_viz/checkpoint/lingua.py"),
    ("transformer_lens", "HookPoint registers with torch", "mta_viz/model/hooking.py"),
    ("transformer_lens", "hooks need not what its packages load", "mta_viz/model/hooking.py"),
    ("streamlit", "messages over 10 kB are not sent again", "mta_viz/ui/linked/component.py"),
    ("streamlit", "a component with a key is the same one with other data", "mta_viz/ui/linked/view.js"),
    ("streamlit", "a run says whether Back or Forward asked for it", "mta_viz/ui/shell/state.py"),
    ("streamlit", "the server says whether a session is connected", "mta_viz/ui/shell/work.py"),
    ("kaleido", "its browser is a process called subprocess", "mta_viz/exporting/pictures.py"),
    ("plotly", "a figure takes a layout unchecked", "mta_viz/plots/parts.py"),
)


@dataclass(frozen=True)
class Item:
    """`text` in a package's scripts, and `why` the app needs it."""

    text: str
    why: str


STREAMLIT = (
    Item("stMainBlockContainer", "style.css: room for content in a 1280 px window"),
    Item("stHtml", "style.css: the text of a sample"),
    Item("stMain", "style.css: rules that leave the sidebar alone"),
    Item("stSelectbox", "style.css: a choice that does not fit ends in dots"),
    Item("stSidebar", "style.css: the sidebar's width"),
    Item("stWidgetLabel", "style.css: pickers in a narrow place have their labels for screen readers only"),
    Item("stSidebarHeader", "style.css: the room over the sidebar"),
    Item("stSidebarContent", "style.css: the sidebar's width"),
    Item("stSidebarUserContent", "style.css: the sidebar's width"),
    Item("stAppHeader", "style.css: pages begin at the top, under Streamlit's bar"),
    Item("stApp", "style.css: rules that know the theme, and whether the sidebar is there"),
    Item("stExpandSidebarButton", "style.css: room for what opens the sidebar again"),
    Item("stStatusWidget", "style.css: what says that the page runs is not in the way"),
    Item("stCaptionContainer", "style.css: small grey text can be read"),
    Item("stMultiSelect", "style.css: letters on what is chosen can be read"),
    Item("pushState", "frame.js: which change of the address is an entry in the browser's history"),
    Item("popstate", "state.py: Back and Forward run the page at the address they lead to"),
    Item("role:`dialog`", "frame.js: a window keeps the focus"),
    Item("st-key-", "style.css and browser tests: an element is found by its widget's or container's key"),
    Item("stPopoverButton", "style.css: a menu's arrow, which is exchanged as it opens, takes no clicks"),
    Item("stButtonGroup", "style.css: segmented controls are as high as the lists beside them"),
    Item("stNumberInputStepUp", "style.css: no room for a second way to step in the inspector"),
    Item("stNumberInputStepDown", "style.css: no room for a second way to step in the inspector"),
    Item("stText", "style.css: numbers in columns"),
    Item("stMarkdownColoredBackground", "style.css: marked parts of a prompt are outlined"),
    Item("stTable", "style.css: definitions use the room a table has"),
    Item("stMarkdownContainer", "style.css: definitions use the room a table has"),
    Item("data-test-script-state", "browser tests: when the script of a page has run"),
    Item("stSkeleton", "browser tests: whether something is still being loaded"),
)
PLOTLY = (
    Item("js-plotly-plot", "style.css: text of charts follows the page's colour"),
    Item("infolayer", "style.css: titles and annotations follow the page's colour"),
    Item("xtick", "style.css: tick labels follow the page's colour"),
    Item("#444", "style.css: the colour of text that has none of its own, rgb(68, 68, 68)"),
    Item("maxdisplayed", "plots.cells.targets: one marker is drawn for all of a map's click targets"),
    Item("bdata", "exports and browser tests: arrays of numbers travel as base64"),
)
