"""A browser that has not heard of a change yet answers with what it shows: nothing is turned back."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.looking import settle, wait_for_map

pytestmark = pytest.mark.browser


def test_a_choice_on_a_slow_line_does_not_turn_back_the_one_before(contexts, app_address):
    held, holding = [], []

    def hold(route):
        server = route.connect_to_server()
        server.on_message(lambda message: held.append(message) if holding else route.send(message))
        routes.append(route)

    routes: list = []
    page = contexts(1280, "light").new_page()
    page.set_default_timeout(60_000)
    page.route_web_socket(re.compile("_stcore"), hold)
    page.goto(app_address + "/?ck=tiny-mta&p=Hello&l=1&h=0&s=kq")
    wait_for_map(page, "L1 H0")
    settle(page)
    holding.append(True)
    page.locator(".st-key-step-layer-Down button").click()
    page.wait_for_timeout(3000)  # the server has answered, and the browser does not know
    page.get_by_role("radio", name="raw", exact=True).click()
    page.wait_for_timeout(3000)
    holding.clear()
    for message in held:
        routes[-1].send(message)
    wait_for_map(page, "L2 H0 · raw scores")
    expect(page).to_have_url(re.compile("l=2.*s=raw"))
    expect(page.get_by_role("combobox", name="Layer")).to_have_value(re.compile("^L2"))
    page.close()


def test_a_field_that_is_loaded_late_shows_what_is_chosen_by_then(contexts, app_address):
    """Of the runs before it is there it sees the last one alone, which tells it nothing new."""
    page, waiting = contexts(1280, "light").new_page(), []
    page.set_default_timeout(60_000)

    def hold(route):
        waiting.append(route)

    page.route(re.compile(r"/NumberInput\.\w+\.js"), hold)
    page.goto(app_address + "/?ck=tiny-mta&p=Hello&l=1&h=0&s=kq&q=3&k=2")
    wait_for_map(page, "L1 H0")
    for layer in ("L2", "L3"):
        page.wait_for_timeout(2500)
        page.locator(".st-key-step-layer-Down button").click()
        wait_for_map(page, layer)
    page.wait_for_timeout(500)
    assert waiting
    for route in waiting:
        route.continue_()
    fields = page.locator(".st-key-inspector input[type=number]")
    expect(fields).to_have_count(2)
    assert [field.input_value() for field in fields.all()] == ["3", "2"]
    page.close()
