"""The selection in the URL, and values that outlive their widgets."""

from streamlit.testing.v1 import AppTest

from mta_viz.ui.shell.state import View, url_from_view, view_from_url


def test_url_and_view_are_inverse():
    view = View("needle-mta", 2, 1, "kq", 503, 211)
    url = {"ck": "needle-mta", "l": "2", "h": "1", "s": "kq", "q": "503", "k": "211"}
    assert url_from_view(view) == url
    assert view_from_url(url) == view


def test_what_is_not_chosen_is_not_in_the_url():
    assert url_from_view(View(layer=0)) == {"l": "0"}


def test_nonsense_in_the_url_is_left_out():
    assert view_from_url({"l": "-1", "h": "two", "q": "1.5", "k": "²", "s": "", "zz": "1"}) == View()
    assert view_from_url({"q": "9" * 5000}) == View()


def _page_with_hidden_widget():
    import streamlit as st

    from mta_viz.ui.shell import state

    if not st.checkbox("hide"):
        st.text_input("name", **state.kept("name", "default"))
        st.selectbox("size", [1, 2], **state.kept("size", 1, [1, 2]))
    st.text(state.get("name"))


def test_a_kept_value_survives_its_widget():
    app = AppTest.from_function(_page_with_hidden_widget).run()
    app.text_input[0].set_value("changed").run()
    app.checkbox[0].check().run()
    assert not app.text_input and app.text[0].value == "changed"
    app.checkbox[0].uncheck().run()
    assert app.text_input[0].value == "changed"


def test_a_value_outside_the_options_falls_back():
    app = AppTest.from_function(_page_with_hidden_widget)
    app.session_state["kept.size"] = 7
    assert app.run().selectbox[0].value == 1
