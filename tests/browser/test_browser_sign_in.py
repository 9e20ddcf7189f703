"""Sign-in with an OpenID Connect provider of this machine, under a base path; needs `streamlit[auth]`."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.browser.serving import looking, start_app, wait_for
from tests.tiny_models import write_models

pytest.importorskip("authlib")
from joserfc import jwt
from joserfc.jwk import RSAKey

pytestmark = pytest.mark.browser
CLIENT, SECRET, NAME = "mta", "of the client", "reader@example.org"


class Provider(BaseHTTPRequestHandler):
    """Signs everybody in as `NAME` who has the client's id and secret."""

    key = RSAKey.generate_key(2048, {"kid": "1", "use": "sig", "alg": "RS256"})
    asked: dict[str, str]

    def do_GET(self) -> None:
        url, here = urlsplit(self.path), f"http://{self.headers['Host']}"
        if url.path == "/authorize":
            type(self).asked = {name: values[0] for name, values in parse_qs(url.query).items()}
            back = urlencode({"code": "1", "state": self.asked["state"]})
            self.send_response(302)
            self.send_header("Location", f"{self.asked['redirect_uri']}?{back}")
            self.end_headers()
        elif url.path == "/jwks":
            self._send({"keys": [self.key.as_dict(private=False)]})
        else:
            places = {
                "authorization_endpoint": "authorize",
                "token_endpoint": "token",
                "jwks_uri": "jwks",
            }
            self._send({"issuer": here, **{name: f"{here}/{place}" for name, place in places.items()}})

    def do_POST(self) -> None:
        here, now = f"http://{self.headers['Host']}", int(time.time())
        claims = {"iss": here, "aud": CLIENT, "sub": "1", "email": NAME, "iat": now, "exp": now + 600}
        claims["nonce"] = self.asked["nonce"]
        token = jwt.encode({"alg": "RS256", "kid": "1"}, claims, self.key)
        self._send({"access_token": "a", "token_type": "Bearer", "expires_in": 600, "id_token": token})

    def log_message(self, *_: object) -> None:
        pass

    def _send(self, content: object) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())


def test_nothing_is_shown_before_the_sign_in_and_out_again(tmp_path: Path, monkeypatch) -> None:
    provider = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    secrets = tmp_path / "secrets.toml"
    monkeypatch.setenv("STREAMLIT_SECRETS_FILES", str(secrets))
    monkeypatch.setenv("STREAMLIT_SERVER_BASE_URL_PATH", "mta")
    process, address = start_app(write_models(tmp_path / "models"))
    settings = {
        "redirect_uri": f"{address}/mta/oauth2callback",
        "cookie_secret": "long and random, but for this test",
        "client_id": CLIENT,
        "client_secret": SECRET,
        "server_metadata_url": f"http://127.0.0.1:{provider.server_port}/.well-known/openid-configuration",
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    secrets.write_text("\n".join(["[auth]", *lines]))
    try:
        wait_for(f"{address}/mta", process)
        with looking((1280, 800)) as page:
            page.goto(f"{address}/mta/kernels?ck=tiny-plain&l=2")
            button = page.get_by_role("button", name="Sign in")
            button.wait_for()
            assert "tiny-plain" not in page.inner_text("body")
            button.click()
            page.wait_for_url(f"{address}/mta/kernels?*ck=tiny-plain*")
            page.get_by_text("Checkpoint", exact=True).wait_for()
            assert "l=2" in page.url and Provider.asked["client_id"] == CLIENT
            page.goto(f"{address}/mta/kernels?ck=tiny-mta")  # the cookie holds for another page
            page.get_by_text("tiny-mta").first.wait_for()
            page.get_by_text("Settings", exact=True).first.click()
            page.get_by_role("button", name="Sign out").click()
            page.get_by_role("button", name="Sign in").wait_for()
    finally:
        process.terminate()
        process.wait(20)
        provider.shutdown()
