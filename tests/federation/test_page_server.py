"""Pages over real sockets: who is answered, and how."""

import base64
import re
import socket
import threading
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest

from dpadmm.errors import ParameterError
from dpadmm.federation import page_server
from dpadmm.federation.page_server import Metrics, Page, PageServer, read_token

CONSENT = {"anywhere": False, "consent": "--anywhere is given"}


def fail():
    raise ZeroDivisionError("of a secret")


@pytest.fixture(scope="module")
def errors():
    return []


@pytest.fixture(scope="module")
def server(errors):
    pages = {
        "/": Page("text/html", lambda: "<p>§</p>", "default-src 'self'"),
        "/broken": Page("text/plain", fail),
    }
    with PageServer("--serve", "127.0.0.1:0", pages, on_error=errors.append, **CONSENT) as server:
        yield server


def ask(server, request):
    """Send bytes; the status, the headers by small letters, and the body."""
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=30) as line:
        line.sendall(request)
        answer = b""
        while piece := line.recv(1 << 16):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, body


def get(server, path="/", host="127.0.0.1", more=""):
    return ask(server, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode())


def test_a_page(server):
    status, headers, body = get(server)
    assert (status, body.decode()) == (200, "<p>§</p>")
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["content-security-policy"] == "default-src 'self'; frame-ancestors 'none'"
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers
    assert headers["server"] == "dpadmm"
    assert get(server, "/?anything=<script>")[0] == 200


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8765", "localhost:9", "LOCALHOST", "[::1]:80", "192.0.2.7:1"]
)
def test_addresses_and_this_machine_are_answered(server, host):
    assert get(server, host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "a b", "[::1"],
)
def test_a_name_of_somebody_else_that_leads_here_is_refused(server, host):
    status, _, body = get(server, host=host)
    assert status == 421
    assert b"evil" not in body


def test_one_host_and_no_more(server):
    assert get(server, more="Host: evil.example\r\n")[0] == 421
    assert ask(server, b"GET / HTTP/1.0\r\n\r\n")[0] == 421


def test_the_name_that_was_given_is_answered(errors):
    pages = {"/": Page("text/plain", lambda: "here")}
    given = {"anywhere": True, "consent": "", "on_error": errors.append}
    with PageServer("--serve", "localhost:0", pages, **given) as server:
        assert get(server, host="localhost:1")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "<b>X"])
def test_it_can_only_be_read(server, method):
    request = f"{method} / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"
    status, headers, body = ask(server, request.encode())
    assert status == 405
    assert headers["allow"] == "get"
    assert b"<b>" not in body


@pytest.mark.parametrize("path", ["/nowhere", "/../etc/passwd", "/<script>", "*"])
def test_nothing_else_is_there(server, path):
    status, headers, body = get(server, path)
    assert (status, body) == (404, b"Not Found.\n")
    assert headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    "request_bytes",
    [b"\r\n\r\n", b"nonsense\r\n\r\n", b"GET /" + b"x" * 70_000, b"GET / HTTP/9.9\r\n\r\n",
     b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", bytes(range(256)) + b"\r\n\r\n"],
)  # fmt: skip
def test_nonsense_gets_no_page_and_breaks_nothing(server, request_bytes, capfd):
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        line.sendall(request_bytes)
        line.shutdown(socket.SHUT_WR)
        assert b"200" not in line.recv(20)
    assert get(server)[0] == 200
    assert capfd.readouterr().err == ""


def test_a_page_that_cannot_be_made(server, errors):
    status, _, body = get(server, "/broken")
    assert status == 500
    assert b"secret" not in body
    assert type(errors.pop()) is ZeroDivisionError


def test_who_holds_all_lines_is_turned_away_and_room_comes_back(monkeypatch, errors):
    monkeypatch.setattr(page_server, "_MOST_AT_ONCE", 2)
    pages = {"/": Page("text/plain", lambda: "here")}
    given = {"on_error": errors.append, **CONSENT}
    with PageServer("--serve", "127.0.0.1:0", pages, **given) as server:
        host, _, port = server.address.rpartition(":")
        held = [socket.create_connection((host, int(port)), timeout=30) for _ in range(2)]
        with socket.create_connection((host, int(port)), timeout=30) as third:
            assert third.recv(1) == b""
        for line in held:
            line.close()
        # The threads of those that left end in their own time.
        for _ in range(1000):
            try:
                assert get(server)[0] == 200
                break
            except (OSError, IndexError):
                threading.Event().wait(0.01)
        else:
            pytest.fail("there is no room")


def test_a_port_that_is_taken_and_one_that_is_free_again(errors):
    given = {"on_error": errors.append, **CONSENT}
    server = PageServer("--serve", "127.0.0.1:0", {}, **given)
    with pytest.raises(ParameterError, match="--serve must be an address of this machine that is"):
        PageServer("--serve", server.address, {}, **given)
    server.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://{server.address}/", timeout=5)
    PageServer("--serve", server.address, {}, **given).close()


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.7:0", "north.example.org:0"])
def test_only_this_machine_unless_allowed(address, errors):
    with pytest.raises(ParameterError, match=r"loopback address .* unless --anywhere is given"):
        PageServer("--serve", address, {}, on_error=errors.append, **CONSENT)


# A token -----------------------------------------------------------------------------------------

TOKEN = "correct-horse-battery"


def token_file(folder, content=f"{TOKEN}\n", mode=0o600):
    path = folder / "token"
    path.write_text(content)
    path.chmod(mode)
    return path


def basic(words):
    return "Basic " + base64.b64encode(words.encode()).decode()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    token = read_token(token_file(tmp_path_factory.mktemp("token")))
    pages = {"/": Page("text/plain", lambda: "inside")}
    with PageServer("--serve", "127.0.0.1:0", pages, token=token, **CONSENT) as server:
        yield server


@pytest.mark.parametrize(
    "shown", [f"Bearer {TOKEN}", f"bearer {TOKEN}", basic(f"anybody:{TOKEN}"), basic(f":{TOKEN}")]
)
def test_who_shows_the_token_is_answered(guarded, shown):
    status, _, body = get(guarded, more=f"Authorization: {shown}\r\n")
    assert (status, body) == (200, b"inside")


@pytest.mark.parametrize(
    "more",
    [
        "",
        "Authorization: Bearer\r\n",
        f"Authorization: Bearer {TOKEN[:-1]}\r\n",
        f"Authorization: Bearer {TOKEN}x\r\n",
        f"Authorization: {TOKEN}\r\n",
        f"Authorization: Digest {TOKEN}\r\n",
        f"Authorization: {basic(TOKEN)}\r\n",
        f"Authorization: {basic(TOKEN + ':anybody')}\r\n",
        "Authorization: Basic !!!\r\n",
        "Authorization: Bearer \xff\xfe\r\n",
        # Which of two counts is nobody's guess.
        f"Authorization: Bearer wrong\r\nAuthorization: Bearer {TOKEN}\r\n",
    ],
)
def test_who_does_not_show_it_is_asked_for_it(guarded, more):
    for path in ("/", "/nothing"):
        status, headers, body = get(guarded, path, more=more)
        assert (status, body) == (401, b"Unauthorized.\n")
        assert headers["www-authenticate"] == 'basic realm="dpadmm", charset="utf-8"'


def test_the_token_comes_in_no_address(guarded):
    assert get(guarded, f"/?token={TOKEN}")[0] == 401


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (f"{TOKEN}\n", 0o640, "nobody else may read it"),
        ("short\n", 0o600, "at least 16 visible ASCII characters"),
        ("", 0o600, "at least 16"),
        ("two words of a long token\n", 0o600, "one token"),
        ("correct-horse\nbattery-staple\n", 0o600, "one token"),
        ("x" * 2000, 0o600, "1000"),
    ],
)
def test_a_token_that_protects_nothing_is_refused(tmp_path, content, mode, words):
    with pytest.raises(ParameterError, match=words):
        read_token(token_file(tmp_path, content, mode))


def test_a_missing_token_is_refused(tmp_path):
    with pytest.raises(ParameterError, match=r"token_file must be a file .* No such file"):
        read_token(tmp_path / "nowhere")
    assert read_token(None) is None


def test_metrics_take_a_token_and_tell_states_errors_and_days():
    pytest.importorskip("prometheus_client", reason="the extra 'federation' is not installed")
    end = datetime.now(UTC) + timedelta(days=30, hours=1)
    with Metrics("127.0.0.1:0", "north", "spring", token=TOKEN.encode()) as served:
        served.certificate("north", end)
        served.state("running")
        served.errors.labels("failed").inc()
        assert get(served, "/metrics")[0] == 401
        more = f"Authorization: Bearer {TOKEN}\r\n"
        text = get(served, "/metrics", more=more)[2].decode()
    assert re.search(r'^dpadmm_certificate_days_left\{certificate="north"\} 30\.0', text, re.M)
    assert 'dpadmm_node_state{state="running"} 1.0' in text
    assert 'dpadmm_node_state{state="starting"} 0.0' in text
    assert 'dpadmm_errors_total{event="failed"} 1.0' in text
