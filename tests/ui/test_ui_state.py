"""The selection in the URL, and values that outlive their widgets."""

from streamlit.testing.v1 import AppTest

from mta_viz.ui.shell import state
from mta_viz.ui.shell.state import Selection, selection_from_url, url_from_selection


def test_url_and_view_are_inverse():
    view = Selection("needle-mta", 2, 1, "kq", 503, 211)
    url = {"ck": "needle-mta", "l": "2", "h": "1", "s": "kq", "q": "503", "k": "211"}
    assert url_from_selection(view) == url
    assert selection_from_url(url) == view


def test_what_is_not_chosen_is_not_in_the_url():
    assert url_from_selection(Selection(layer=0)) == {"l": "0"}


def test_nonsense_in_the_url_is_left_out():
    assert (
        selection_from_url({"l": "-1", "h": "two", "q": "1.5", "k": "²", "s": "", "zz": "1"}) == Selection()
    )
    assert selection_from_url({"q": "9" * 5000}) == Selection()


def _page_with_hidden_widget():
    import streamlit as st

    from mta_viz.ui.shell import state
    from mta_viz.ui.shell.state import Setting

    name, size = Setting("name", "default"), Setting("size", 1)
    state.read_settings(())
    if not st.checkbox("hide"):
        st.text_input("name", **name.widget())
        st.selectbox("size", [1, 2], **size.widget([1, 2]))
    st.text(name.value)


def test_a_value_survives_its_widget():
    app = AppTest.from_function(_page_with_hidden_widget).run()
    app.text_input[0].set_value("changed").run()
    app.checkbox[0].check().run()
    assert not app.text_input and app.text[0].value == "changed"
    app.checkbox[0].uncheck().run()
    assert app.text_input[0].value == "changed"


def test_a_value_that_is_not_on_offer_falls_back_and_is_said():
    app = AppTest.from_function(_page_with_hidden_widget)
    app.query_params["size"] = "7"
    assert app.run().selectbox[0].value == 1
    assert app.session_state["session"].link.refused == ["size: 7 is not on offer here"]


def _page_with_a_default_of_its_own():
    import streamlit as st

    from mta_viz.ui.shell import state
    from mta_viz.ui.shell.state import Setting

    usual = [2, 6] if st.checkbox("deep") else [1]
    state.read_settings(())
    layers = Setting("layers", [])
    st.multiselect("layers", range(8), **layers.widget(range(8), default=usual))


def test_what_nobody_chose_is_as_usual_for_another_model_too():
    app = AppTest.from_function(_page_with_a_default_of_its_own).run()
    assert app.multiselect[0].value == [1]
    app.checkbox[0].check().run()
    assert app.multiselect[0].value == [2, 6]
    app.multiselect[0].set_value([2, 5]).run()
    app.checkbox[0].uncheck().run()
    assert app.multiselect[0].value == [2, 5]


def _page_with_other_words():
    import streamlit as st

    from mta_viz.ui.shell import state
    from mta_viz.ui.shell.state import Setting
    from mta_viz.ui.shell.widgets import menu

    state.enter("page")
    first = 1 if st.checkbox("from 1") else 0
    menu("layer", {layer: f"L{layer + first}" for layer in range(3)}, Setting("layer", 1))
    state.leave()


def test_a_list_whose_words_changed_is_another_widget():
    """A browser goes on showing the old word of an option that is chosen."""
    app = AppTest.from_function(_page_with_other_words).run()
    before = app.selectbox[0].key
    assert app.run().selectbox[0].key == before
    app.checkbox[0].check().run()
    assert app.selectbox[0].key != before
    assert (app.selectbox[0].value, app.selectbox[0].options[1]) == (1, "L2")
    after = app.selectbox[0].set_value(2).run().selectbox[0]  # a visitor's own choice is none
    assert (app.run().selectbox[0].key, after.value) == (after.key, 2)


def _page_that_stops():
    import streamlit as st

    from mta_viz.ui.shell import state
    from mta_viz.ui.shell.state import Setting

    state.enter("A page")
    if st.checkbox("stop"):
        st.stop()
    st.selectbox("size", [1, 2], **Setting("size", 1).widget([1, 2]))


def test_a_widget_that_the_browser_forgot_is_told_its_value_anew():
    app = AppTest.from_function(_page_that_stops).run()
    assert app.run().selectbox[0].proto.set_value  # for a moment: a busy browser draws the second run alone
    app.selectbox[0].set_value(2).run()
    assert not app.run().selectbox[0].proto.set_value  # which would erase half-typed text
    app.checkbox[0].check().run()
    box = app.checkbox[0].uncheck().run().selectbox[0]
    assert box.proto.set_value and box.value == 2


def _page_in_history():
    import streamlit as st

    from mta_viz.ui.shell import state
    from mta_viz.ui.shell.state import Setting

    state.enter("A page")
    state.read_settings(())
    st.selectbox("size", [1, 2, 3], **Setting("size", 1).widget([1, 2, 3]))
    st.text(f"{state.selection().layer}")
    state.leave()


def test_back_restores_selection_and_settings_also_what_the_address_leaves_out(monkeypatch):
    app = AppTest.from_function(_page_in_history)
    app.query_params["size"], app.query_params["l"] = "2", "1"
    app.run()
    app.selectbox[0].set_value(3).run()
    monkeypatch.setattr(state, "went_back", lambda: True)
    app.query_params.clear()
    app.query_params["l"] = "4"
    app.run()
    assert app.selectbox[0].value == 1 and app.text[0].value == "4"
    monkeypatch.undo()
    app.selectbox[0].set_value(2).run()
    assert app.selectbox[0].value == 2 and "".join(app.query_params["size"]) == "2"
